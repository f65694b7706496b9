"""Official splits in lists, and Tiny-ImageNet: small files in the layouts in which they are distributed."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from raysim.config import load
from raysim.data.custom_files import image_folder
from raysim.data.dataset import Dataset, Declared, MissingData
from raysim.data.image_lists import image_list, tiny_imagenet
from raysim.data.loading import load_dataset
from raysim.data.paths import RELATIVE
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError


def write(path: Path, value: int, size: int = 8) -> None:
    """A grey image in RGB."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (size, size), (value, value, value)).save(path)


def values(split: Any) -> list[int]:
    return [int(value) for value in split.x[:, 0, 0, 0]]


# lists

PACS = {  # class by class, the values of the images to train on and of those in the list for validation
    "photo": {"dog": ([10, 11], [12]), "elephant": ([20], [21, 22])},
    "sketch": {"dog": ([30], [31]), "elephant": ([40, 41, 42], [43])},
}


@pytest.fixture
def pacs(tmp_path: Path) -> Path:
    """PACS/kfold/DOMAIN/CLASS/pic_VALUE.png, and beside it the lists DOMAIN_{train,crossval,test}_kfold.txt.

    Their labels begin with 1; the list for testing has all images, as the domain is then trained on no others.
    """
    for domain, classes in PACS.items():
        lists: dict[str, list[str]] = {"train": [], "crossval": [], "test": []}
        for label, (name, parts) in enumerate(classes.items(), 1):
            for part, images in zip(("train", "crossval"), parts, strict=True):
                for value in images:
                    image = f"{domain}/{name}/pic_{value}.png"
                    write(tmp_path / "PACS" / "kfold" / image, value)
                    lists[part].append(f"{image} {label}\n")
                    lists["test"].append(f"{image} {label}\n")
        for part, lines in lists.items():
            (tmp_path / "PACS" / f"{domain}_{part}_kfold.txt").write_text("".join(lines))
    return tmp_path


def of_pacs(domain: str, **more: object) -> dict[str, object]:
    lists = {"train": f"PACS/{domain}_train_kfold.txt", "test": f"PACS/{domain}_crossval_kfold.txt"}
    return {"path": "PACS/kfold", **lists, "first_label": 1, "size": 8, **more}


def test_pacs_lists_are_its_split(pacs: Path) -> None:
    found = load_dataset(image_list, str(pacs), False, of_pacs("photo"))
    assert (found.shape, found.train.x.dtype, found.classes) == ((3, 8, 8), np.uint8, 2)
    assert found.names == ("dog", "elephant")
    assert (values(found.train), found.train.y.tolist()) == ([10, 11, 20], [0, 0, 1])
    assert (values(found.test), found.test.y.tolist()) == ([12, 21, 22], [0, 1, 1])
    assert load_dataset(image_list, str(pacs), False, of_pacs("photo", grey=True, size=3)).shape == (1, 3, 3)


def test_lists_are_domains(pacs: Path) -> None:
    domains = [{"name": "image_list", **of_pacs(domain)} for domain in PACS]
    config = load({
        "name": "lists",
        "dataset": {**domains[0], "root": str(pacs)},
        "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": domains}},
        "clients": {"count": 1},
        "model": {"name": "mlp"},
        "training": {"rounds_per_task": 1},
    })  # fmt: skip
    federation = build_federation(config)
    assert federation.dataset.names == ("dog", "elephant")
    by_task = [
        (sorted(values(federation.dataset.train)[row] for row in task.train), [len(task.test)])
        for task in federation.tasks
    ]
    assert by_task == [([10, 11, 20], [3]), ([30, 40, 41, 42], [2])]


def test_dn4il_lists_name_images_of_domainnets_folders(tmp_path: Path) -> None:
    """The lists lie apart from the images; labels from 0, not in order. One more has spaces, empty lines and CRLF."""
    rows = {
        "train": [
            ("clipart/airplane/clipart_002_000001.jpg", 1),
            ("clipart/aircraft_carrier/clipart_001_000005.jpg", 0),
        ],
        "test": [("clipart/aircraft_carrier/a photo 7.jpg", 0)],
    }
    (tmp_path / "DN4IL").mkdir()
    for part, lines in rows.items():
        text = "\r\n\r\n".join(f"{image} {label}" for image, label in lines)
        (tmp_path / "DN4IL" / f"clipart_{part}.txt").write_bytes(text.encode())
        for image, label in lines:
            write(tmp_path / "DomainNet" / image, 100 * label)
    keys = {"train": "DN4IL/clipart_train.txt", "test": "DN4IL/clipart_test.txt"}
    found = image_list(tmp_path, False, path="DomainNet", **keys)
    assert found.names == ("aircraft_carrier", "airplane")
    assert found.train.y.tolist() == [1, 0]
    assert abs(values(found.train)[0] - 100) < 3  # JPEG
    assert found.test.y.tolist() == [0]


def test_a_list_of_the_split_of_folders_is_that_data_set(tmp_path: Path) -> None:
    """Two loaders of the same images: 15 of random pixels in three classes, train/ and test/."""
    draws = np.random.default_rng(0)
    lists: dict[str, list[str]] = {"train": [], "test": []}
    for part, count in (("train", 4), ("test", 1)):
        for label, name in enumerate(("ant", "bee", "cat")):
            for number in range(count):
                path = tmp_path / "pets" / part / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(draws.integers(0, 256, (9, 7, 3), np.uint8)).save(path)
                lists[part].append(f"{part}/{name}/{number}.png {label}")
        (tmp_path / f"{part}.txt").write_text("\n".join(lists[part]))
    folders = image_folder(tmp_path, False, path="pets", size=5)
    listed = image_list(tmp_path, False, path="pets", train="train.txt", test="test.txt", size=5)
    assert listed.names == folders.names
    for own, other in ((listed.train, folders.train), (listed.test, folders.test)):
        assert np.array_equal(own.x, other.x)
        assert np.array_equal(own.y, other.y)


def test_classes_without_a_folder_of_their_own_have_no_names(tmp_path: Path) -> None:
    """One folder for two classes; and label 1, which no image has, so that there are three classes."""
    for name in ("0.png", "1.png", "2.png"):
        write(tmp_path / "all" / name, 1)
    for lines, classes in ((["all/0.png 0", "all/1.png 1"], 2), (["all/0.png 0", "all/1.png 2"], 3)):
        (tmp_path / "train.txt").write_text("\n".join(lines))
        (tmp_path / "test.txt").write_text("all/2.png 0")
        found = image_list(tmp_path, False, path=".", train="train.txt", test="test.txt")
        assert (found.names, found.classes) == (None, classes)


def refusal(load_it: Callable[..., Dataset], root: Path, keys: Mapping[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_dataset(load_it, str(root), False, keys)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"photo/dog/pic_10.png", "'photo/dog/pic_10.png'"),
        (b"1", "'1'"),
        (b"photo/dog/pic_10.png one", "'photo/dog/pic_10.png one'"),
        (b"photo/dog/pic_10.png -1", "'photo/dog/pic_10.png -1'"),
        (b"photo/dog/pic_10.png 0", "'photo/dog/pic_10.png 0'"),
        (b"photo/dog/pic_10.png 1.0", "'photo/dog/pic_10.png 1.0'"),
        (b"photo/dog/pic_10.png 12345678901234567890", "'photo/dog/pic_10.png 12345678901234567890'"),
        (b"\x89PNG\r\x1a", r"'\udc89PNG'"),
    ],
)
def test_rubbish_lines_are_named(pacs: Path, line: bytes, found: str) -> None:
    file = pacs / "PACS" / "photo_train_kfold.txt"
    file.write_bytes(b"photo/dog/pic_11.png 1\n\n" + line + b"\n")
    assert refusal(image_list, pacs, of_pacs("photo")) == (
        f"dataset.train: {file}, line 3: found {found}, allowed: a path, a space and a label, a whole number from "
        "dataset.first_label (1)"
    )


def test_a_split_that_cannot_be_meant_is_refused(pacs: Path) -> None:
    lists = pacs / "PACS"
    assert refusal(image_list, pacs, of_pacs("photo", first_label=0)) == (
        f"dataset.first_label: found 0, allowed: 1, the smallest label in {lists}/photo_train_kfold.txt"
    )
    assert refusal(image_list, pacs, of_pacs("photo", test="PACS/photo_test_kfold.txt")) == (
        f"dataset.test: found {lists}/kfold/photo/dog/pic_10.png, which is in {lists}/photo_train_kfold.txt too, "
        "allowed: images that are not trained on"
    )
    for spelling in ("../kfold/photo/dog/pic_10.png", "photo/./dog/pic_10.png", f"{lists}/kfold/photo/dog/pic_10.png"):
        (lists / "photo_crossval_kfold.txt").write_text(f"{spelling} 1")
        assert "which is in" in refusal(image_list, pacs, of_pacs("photo", path="PACS/../PACS/kfold"))
    (lists / "photo_crossval_kfold.txt").write_text("photo/dog/pic_12.png 3")
    assert refusal(image_list, pacs, of_pacs("photo")) == (
        f"dataset.test: found {lists}/kfold/photo/dog/pic_12.png with the label 3, which no image in "
        f"{lists}/photo_train_kfold.txt has, allowed: labels that are trained on"
    )
    (lists / "photo_crossval_kfold.txt").write_text("\n")
    assert refusal(image_list, pacs, of_pacs("photo")) == (
        f"dataset.test: {lists}/photo_crossval_kfold.txt names no images, allowed: a line for each, a path, a space "
        "and a label"
    )


def test_a_list_may_begin_with_a_byte_order_mark_and_names_an_image_with_one_label(pacs: Path) -> None:
    """Windows' editors write the mark. An image twice with one label counts twice."""
    file = pacs / "PACS" / "photo_train_kfold.txt"
    lines = file.read_text()
    file.write_text(f"{lines}./photo/dog/pic_10.png 1\n", encoding="utf-8-sig")
    assert values(load_dataset(image_list, str(pacs), False, of_pacs("photo")).train) == [10, 11, 20, 10]
    file.write_text(f"{lines}./photo/dog/pic_10.png 2\n")
    said = refusal(image_list, pacs, of_pacs("photo"))
    assert "pic_10.png with the labels 1 and 2, allowed: one label for each image" in said


def test_missing_lists_and_images_are_named(pacs: Path) -> None:
    lists = pacs / "PACS"
    assert refusal(image_list, pacs, of_pacs("photo", train="PACS/photos.txt")) == (
        f"dataset.train: there is no file {lists}/photos.txt; {RELATIVE}"
    )
    for name in ("pic_11", "pic_10"):
        (lists / "kfold" / "photo" / "dog" / f"{name}.png").unlink()
    assert refusal(image_list, pacs, of_pacs("photo")) == (
        f"dataset.path: 2 of the 3 images in {lists}/photo_train_kfold.txt are not there, the first "
        f"{lists}/kfold/photo/dog/pic_10.png; {RELATIVE}"
    )
    write(lists / "kfold" / "photo" / "dog" / "pic_10.png", 1)
    (lists / "kfold" / "photo" / "dog" / "pic_11.png").write_bytes(b"no image")
    assert f"{lists}/kfold/photo/dog/pic_11.png cannot be read as an image" in refusal(
        image_list, pacs, of_pacs("photo")
    )


@pytest.mark.parametrize(("path", "declared"), [("elsewhere", Declared((3, 8, 8), 3, 3, 2)), ("PACS/kfold", None)])
def test_lists_alone_declare_what_the_images_would_be(pacs: Path, path: str, declared: Declared | None) -> None:
    """Not where some of the images are there, which is an error wherever it is asked for."""
    (pacs / "PACS" / "kfold" / "photo" / "dog" / "pic_10.png").unlink()
    with pytest.raises(MissingData) as found:
        load_dataset(image_list, str(pacs), False, of_pacs("photo", path=path))
    assert found.value.declared == declared


# Tiny-ImageNet


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """tiny-imagenet-200 with three classes of two images, and three images to validate on; test/ is unlabelled."""
    folder = tmp_path / "tiny-imagenet-200"
    for value, wnid in ((50, "n01443537"), (100, "n01629819"), (150, "n01641577")):
        for number in range(2):
            write(folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", value + 10 * number, size=64)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    for number, value in enumerate((160, 60, 70)):
        write(folder / "val" / "images" / f"val_{number}.JPEG", value, size=64)
    annotated = (
        "val_0.JPEG\tn01641577\t0\t32\t44\t62",
        "val_1.JPEG\tn01443537\t0\t1\t2\t3",
        "val_2.JPEG\tn01443537\t4\t5\t6\t7",
    )
    (folder / "val" / "val_annotations.txt").write_text("".join(f"{line}\n" for line in annotated))
    (folder / "wnids.txt").write_text("n01629819\nn01443537\nn01641577\n")
    words = ("n00001740\tentity", "n01443537\tgoldfish, Carassius auratus", "n01641577\tbullfrog, Rana catesbeiana")
    (folder / "words.txt").write_text("\n".join(words))
    write(folder / "test" / "images" / "test_0.JPEG", 1)
    return tmp_path


def test_tiny_imagenet_is_read_as_it_is_distributed(tiny: Path) -> None:
    """Labels are the lines of wnids.txt, not the order of the folders; a class without words has its number."""
    found = load_dataset(tiny_imagenet, str(tiny), False, {})
    assert (found.shape, found.train.x.dtype, found.classes) == ((3, 64, 64), np.uint8, 3)
    assert found.names == ("n01629819", "goldfish", "bullfrog")
    assert found.train.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert found.test.y.tolist() == [2, 1, 1]
    near = [round(value, -1) for value in (*values(found.train), *values(found.test))]  # JPEG
    assert near == [100, 110, 50, 60, 150, 160, 160, 60, 70]
    picture = np.asarray(Image.open(tiny / "tiny-imagenet-200" / "val" / "images" / "val_1.JPEG"))
    assert np.array_equal(found.test.x[1], picture.transpose(2, 0, 1))
    assert load_dataset(tiny_imagenet, str(tiny / "tiny-imagenet-200"), False, {"path": ".", "size": 4}).shape == (
        3,
        4,
        4,
    )


def test_tiny_imagenets_classes_have_names(tiny: Path) -> None:
    config = load({
        "name": "names",
        "dataset": {"name": "tiny_imagenet", "root": str(tiny), "size": 4},
        "scenario": {"kind": "class_incremental", "tasks": 2, "classes": [["bullfrog", "n01629819"], ["goldfish"]]},
        "clients": {"count": 1},
        "model": {"name": "mlp"},
        "training": {"rounds_per_task": 1},
    })  # fmt: skip
    assert [task.classes for task in build_federation(config).tasks] == [(0, 2), (1,)]


def test_what_tiny_imagenet_lacks_is_named(tiny: Path) -> None:
    folder = tiny / "tiny-imagenet-200"
    with pytest.raises(MissingData) as found:
        load_dataset(tiny_imagenet, str(tiny), False, {"path": "tiny"})
    assert found.value.declared == Declared((3, 64, 64), 100_000, 10_000, 200)
    assert str(found.value) == (
        f"dataset.path: there is no folder {tiny}/tiny; {RELATIVE}; unpack "
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
    )
    (folder / "val" / "images" / "val_1.JPEG").unlink()
    assert refusal(tiny_imagenet, tiny, {}) == (
        f"dataset.path: 1 of the 3 images in {folder}/val/val_annotations.txt are not there, the first "
        f"{folder}/val/images/val_1.JPEG; {RELATIVE}"
    )
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn01641577\t0\nval_2.JPEG n01443537\n")
    assert refusal(tiny_imagenet, tiny, {}) == (
        f"dataset.path: {folder}/val/val_annotations.txt, line 2: found 'val_2.JPEG n01443537', allowed: an image, a "
        "tab and a class that is in wnids.txt"
    )
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn09999999\t0\n")
    assert "line 1: found 'val_0.JPEG n09999999 0', allowed: an image" in refusal(tiny_imagenet, tiny, {})
    for image in (folder / "train" / "n01443537" / "images").iterdir():
        image.unlink()
    assert f"{folder}/train/n01443537/images holds no images" in refusal(tiny_imagenet, tiny, {})
    (folder / "wnids.txt").unlink()
    assert "dataset tiny_imagenet: its files cannot be read: [Errno 2]" in refusal(tiny_imagenet, tiny, {})
