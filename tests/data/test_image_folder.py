"""Folders of images: what is read, how it is split, and what is refused; all on folders that the tests write."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import raysim
from raysim.config import load
from raysim.data.custom_files import image_folder
from raysim.data.dataset import Dataset, Split
from raysim.data.loading import load_dataset
from raysim.data.scenario import domains
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError


def write(folder: Path, value: int, width: int = 8, height: int = 8, mode: str = "RGB") -> None:
    """An image in one colour: (value, value + 1, value + 2), or the value as grey."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    colour: Any = value if mode in ("L", "P") else (value, value + 1, value + 2, 9)[: len(mode)]
    Image.new(mode, (width, height), colour).save(folder)


def many(folder: Path, **counts: int) -> None:
    """So many images of each class; image n of class c (both from 0) has the value 100 c + 10 n."""
    for number, (name, count) in enumerate(counts.items()):
        for n in range(count):
            write(folder / name / f"{n:02}.png", 100 * number + 10 * n)


def values(split: Any) -> list[int]:
    return [int(value) for value in split.x[:, 0, 0, 0]]


def test_every_image_is_resized_as_pillow_does_and_kept_as_uint8(tmp_path):
    draws = np.random.default_rng(0)
    pictures = {f"{n}.png": draws.integers(0, 256, (7 + n, 12, 3), np.uint8) for n in range(4)}
    for name, picture in pictures.items():
        for label in ("cat", "dog"):
            (tmp_path / "pets" / label).mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(tmp_path / "pets" / label / name)
    found = load_dataset(image_folder, str(tmp_path), False, {"path": "pets", "size": 5, "test_fraction": 0.25})
    assert (found.shape, found.train.x.dtype, found.classes, found.names) == ((3, 5, 5), np.uint8, 2, ("cat", "dog"))
    assert (len(found.train), len(found.test)) == (6, 2)
    expected = [
        np.asarray(Image.fromarray(picture).resize((5, 5), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        for picture in pictures.values()
    ]
    for split in (found.train, found.test):
        for x in split.x:
            assert any(np.array_equal(x, picture) for picture in expected)
    both = np.concatenate([found.train.x[found.train.y == 0], found.test.x[found.test.y == 0]])
    assert sorted(x.tobytes() for x in both) == sorted(x.tobytes() for x in expected)


def test_grey_is_pillows(tmp_path):
    """ITU-R 601: 0.299 R + 0.587 G + 0.114 B of (50, 51, 52) is 50.8; of (150, 151, 152) 150.8."""
    many(tmp_path, a=2)
    write(tmp_path / "a" / "00.png", 50)
    write(tmp_path / "a" / "01.png", 150)
    found = image_folder(tmp_path, False, path=".", grey=True, size=2)
    assert found.shape == (1, 2, 2)
    assert sorted([*values(found.train), *values(found.test)]) == [51, 151]


def test_train_and_test_folders_are_the_split(tmp_path):
    many(tmp_path / "train", dog=3, cat=1)
    many(tmp_path / "test", dog=1, cat=1)
    found = image_folder(tmp_path, False, path=str(tmp_path))
    assert found.names == ("cat", "dog")  # sorted, however they were written
    assert (values(found.train), found.train.y.tolist()) == ([100, 0, 10, 20], [0, 1, 1, 1])
    assert (values(found.test), found.test.y.tolist()) == ([100, 0], [0, 1])


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_validation_images_are_the_test_set_if_there_is_no_other(tmp_path, name):
    """Two training images of each class, and the first one of each of two later sets; see `many` for the values."""
    many(tmp_path / "train", cat=2, dog=2)
    many(tmp_path / name, cat=1, dog=1)
    found = image_folder(tmp_path, False, path=".")
    assert (found.names, values(found.train), values(found.test)) == (("cat", "dog"), [0, 10, 100, 110], [0, 100])
    many(tmp_path / "test", cat=3, dog=1)
    assert values(image_folder(tmp_path, False, path=".").test) == [0, 10, 20, 100]


def test_train_alone_is_a_class(tmp_path):
    """DomainNet has a class of that name."""
    many(tmp_path, boat=3, train=3)
    assert image_folder(tmp_path, False, path=".").names == ("boat", "train")


def test_a_fraction_of_every_class_is_for_testing(tmp_path):
    """round(0.3 n) of n, at least 1 and not all: of 10 and 4 images 3 and 1, of 2 images 1."""
    many(tmp_path, a=10, b=4, c=2)
    found = image_folder(tmp_path, False, path=".", test_fraction=0.3)
    assert np.bincount(found.test.y).tolist() == [3, 1, 1]
    assert np.bincount(found.train.y).tolist() == [7, 3, 1]
    assert sorted(values(found.train) + values(found.test)) == sorted([
        *range(0, 100, 10), *range(100, 140, 10), 200, 210
    ])  # fmt: skip
    assert values(found.train) == sorted(values(found.train))
    most = image_folder(tmp_path, False, path=".", test_fraction=0.99)
    assert np.bincount(most.train.y).tolist() == [1, 1, 1]


def test_the_split_is_drawn_from_its_seed_and_the_classs_name(tmp_path):
    many(tmp_path, a=10, b=10)
    first, again, other = (image_folder(tmp_path, False, path=".", test_fraction=0.4, seed=seed) for seed in (0, 0, 1))
    alone = image_folder(tmp_path, False, path=".", test_fraction=0.4, classes=("b",))
    assert [value + 100 for value in values(first.test)[:4]] != values(first.test)[4:]
    assert values(first.test) == values(again.test) != values(other.test)
    assert values(alone.test) == [value for value in values(first.test) if value >= 100]
    assert alone.names == ("b",)


def test_what_is_no_image_is_let_be(tmp_path):
    many(tmp_path, a=3)
    (tmp_path / "a" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "a" / "Thumbs.db").write_bytes(b"x")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "README.txt").write_text("x")
    found = image_folder(tmp_path, False, path=".")
    assert len(found.train) + len(found.test) == 3


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_images_of_every_kind_become_rgb(tmp_path, mode):
    for n in range(3):
        write(tmp_path / "a" / f"{n}.{'jpg' if mode == 'CMYK' else 'png'}", 7, mode=mode)
    assert image_folder(tmp_path, False, path=".").shape == (3, 32, 32)


def test_only_the_formats_that_are_listed_are_read(tmp_path):
    """PostScript, which Pillow gives to another program, in a file that is called .png."""
    many(tmp_path, dog=3)
    (tmp_path / "dog" / "0.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n"
    )
    assert f"{tmp_path}/dog/0.png cannot be read as an image (cannot identify" in refusal(tmp_path)


def refusal(root: Path, **keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_dataset(image_folder, str(root), False, {"path": ".", **keys})
    return str(caught.value)


def test_what_is_missing_is_named(tmp_path):
    assert refusal(tmp_path, path="PACS") == (
        f"dataset.path: there is no folder {tmp_path}/PACS; a relative path starts at dataset.root, by default "
        "$RAYSIM_DATA or ~/.cache/raysim"
    )
    assert refusal(tmp_path) == (
        f"dataset.path: {tmp_path} holds no folders, allowed: a folder of images for each class"
    )
    many(tmp_path / "photo", dog=3)
    (tmp_path / "photo" / "cat").mkdir()
    assert refusal(tmp_path / "photo") == (
        f"dataset.path: {tmp_path}/photo/cat holds no images, allowed: at least one in every class's folder"
    )
    assert refusal(tmp_path) == (
        f"dataset.path: {tmp_path}/photo holds no images, allowed: at least one in every class's folder; "
        f"it holds the folder cat: is {tmp_path}/photo the path that was meant?"
    )
    assert refusal(tmp_path / "photo", classes=("dgo",)) == (
        f"dataset.classes: there is no folder 'dgo' in {tmp_path}/photo; did you mean 'dog'?"
    )
    write(tmp_path / "photo" / "cat" / "1.png", 1)
    assert refusal(tmp_path / "photo") == (
        f"dataset.path: {tmp_path}/photo/cat holds one image, allowed: two and more, one for testing"
    )
    assert "its files cannot be read: [Errno 36] File name too long" in refusal(tmp_path, path="x" * 300)


def test_train_and_test_must_have_the_same_classes(tmp_path):
    many(tmp_path / "train", dog=2, cat=2)
    many(tmp_path / "test", dog=2)
    assert refusal(tmp_path) == (
        f"dataset.path: {tmp_path}/train has a class 'cat' and {tmp_path}/test has not; both must have the same"
    )


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"\xff\xd8\xff\xe0 no jpeg", None])
def test_an_image_that_cannot_be_read_is_named(tmp_path, content):
    many(tmp_path, dog=4)
    whole = (tmp_path / "dog" / "02.png").read_bytes()
    (tmp_path / "dog" / "02.png").write_bytes(whole[: len(whole) // 2] if content is None else content)
    said = refusal(tmp_path)
    assert said.startswith(f"dataset.path: {tmp_path}/dog/02.png cannot be read as an image (")
    assert said.endswith("); replace or remove it")


def test_what_does_not_fit_into_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    many(tmp_path, dog=4)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=2 * 4 * 9 * 3 - 1))
    assert refusal(tmp_path, size=3, load="memory").startswith(
        "dataset.size: found 3 for 4 images, which takes 0.0 GiB, allowed:"
    )


# as domains


def config(root: Path, *domains: str, **more: object) -> Any:
    return load({
        "name": "folders",
        "dataset": {"name": "image_folder", "path": domains[0], "size": 4, "root": str(root)},
        "scenario": {
            "kind": "domain_incremental",
            "tasks": len(domains),
            "shift": {"domains": [{"name": "image_folder", "path": path, "size": 4} for path in domains]},
        },
        "clients": {"count": 2},
        "model": {"name": "mlp"},
        "training": {"rounds_per_task": 1},
    }, more)  # fmt: skip


def test_a_folder_for_each_domain(tmp_path):
    many(tmp_path / "photo", dog=10, cat=5)
    many(tmp_path / "sketch", dog=5, cat=5)
    federation = build_federation(config(tmp_path, "photo", "sketch"))
    assert [task.name for task in federation.tasks] == ["image_folder photo", "image_folder sketch"]
    assert [len(task.train) for task in federation.tasks] == [12, 8]
    assert [len(task.test) for task in federation.tasks] == [3, 2]
    assert federation.dataset.names == ("cat", "dog")
    assert len(build_federation(config(tmp_path, "photo", "sketch", **{"dataset.train_samples": 4})).dataset.train) == 8


@pytest.mark.parametrize("more", [{"dog": 5, "cat": 5, "cow": 5}, {"dog": 5, "cow": 5}])
def test_domains_with_other_classes_are_refused(tmp_path, more):
    many(tmp_path / "photo", dog=5, cat=5)
    many(tmp_path / "sketch", **more)
    only = "only image_folder photo has a class 'cat'" if "cat" not in more else (
        "only image_folder sketch has a class 'cow'"
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        build_federation(config(tmp_path, "photo", "sketch"))
    assert str(caught.value) == f"scenario.shift.domains: {only}; all must have the same ones"


def test_images_of_16_bits_are_scaled_and_those_of_32_refused(tmp_path):
    """16 bits of 256 k are 8 bits of k. Pillow alone makes 255 of all values above 255."""
    for label in ("cat", "dog"):
        (tmp_path / "deep" / label).mkdir(parents=True)
        for k in (0, 3, 200):
            Image.fromarray(np.full((4, 4), 256 * k + 7, np.uint16)).save(tmp_path / "deep" / label / f"{k:03}.png")
    found = image_folder(tmp_path, False, path="deep", size=4, grey=True)
    assert sorted({*values(found.train), *values(found.test)}) == [0, 3, 200]
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "deep/cat/a.tif")
    with pytest.raises(
        ConfigError, match=r"a.tif cannot be read as an image \(found pixels of 32 bits \(mode F\), allowed"
    ):
        image_folder(tmp_path, False, path="deep", size=4)


@pytest.mark.filterwarnings("ignore:found a single color")
def test_a_model_is_evaluated_on_folders_of_its_classes_alone(tmp_path):
    """A cow would count as a dog, since both are the second class of their folder."""
    many(tmp_path / "photo", cat=5, dog=5)
    many(tmp_path / "sketch", cat=5, dog=5)
    many(tmp_path / "farm", cat=5, cow=5)
    config_of_run = config(
        tmp_path, "photo", **{"logging.tensorboard": False, "scenario": {"kind": "class_incremental", "tasks": 1}}
    )
    raysim.run(config_of_run, out=tmp_path / "run", local=True)
    assert raysim.evaluate(tmp_path / "run", ["dataset.path=sketch"]).samples == [2]
    words = r"^dataset: found the classes .*cat.*cow.*, allowed: those that the model was trained on, .*cat.*dog"
    with pytest.raises(ConfigError, match=words):
        raysim.evaluate(tmp_path / "run", ["dataset.path=farm"])


def test_domains_with_classes_in_another_order_are_refused():
    x, y = np.zeros((4, 1), np.float32), np.array([0, 1, 0, 1])
    sets = [Dataset(Split(x, y), Split(x, y), 2, names) for names in (("cat", "dog"), ("dog", "cat"))]
    words = r"^scenario.shift.domains: b has the classes of a in another order; all must have the same order$"
    with pytest.raises(ConfigError, match=words):
        domains([("a", sets[0]), ("b", sets[1])], 0)


def test_names_that_are_no_utf_8_are_read_and_named(tmp_path):
    """Linux takes any bytes; the message shows them as escapes, which a terminal can print."""
    for label in (b"caf\xe9", b"dog"):
        many(tmp_path, **{os.fsdecode(label): 2})
    found = image_folder(tmp_path, False, path=".", size=4)
    assert (found.classes, len(found.train), len(found.test)) == (2, 2, 2)
    (tmp_path / "dog" / os.fsdecode(b"\xff.png")).write_bytes(b"no image")
    with pytest.raises(ConfigError, match=r"/dog/\\udcff\.png cannot be read as an image") as refused:
        image_folder(tmp_path, False, path=".", size=4)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("place", ["a/pipe.png", "a/gone.png", "a/pipe", "gone", "train/a/gone.png"])
def test_what_is_no_file_is_named(place, tmp_path):
    """A pipe, and links to nothing: of an image, and of a class."""
    many(tmp_path, a=3, b=3)
    if place.startswith("train"):
        many(tmp_path / "train", a=2)
        many(tmp_path / "test", a=2)
    if "pipe" in place:
        os.mkfifo(tmp_path / place)
    else:
        (tmp_path / place).symlink_to(tmp_path / "nothing")
    found = "a pipe or a device" if "pipe" in place else "a link to nothing"
    words = rf"^dataset\.path: {tmp_path / place} is {found}, allowed: files and folders; replace or remove it$"
    with pytest.raises(ConfigError, match=words):
        image_folder(tmp_path, False, path=".")
