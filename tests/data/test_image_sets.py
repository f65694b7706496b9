"""Published image datasets by name, on small files in their official layouts: which image has which label and part."""

import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from small_configs import SMALL

from raysim.cli import main
from raysim.config import load
from raysim.config.lookup import resolve
from raysim.data import archives
from raysim.data.archives import Archive, unpack
from raysim.data.dataset import Dataset, MissingData, Unread
from raysim.data.image_sets import sets
from raysim.data.image_sets.records import SplitList
from raysim.data.loading import load_dataset
from raysim.system.errors import ConfigError


def draw(file: Path, value: int) -> None:
    """An image of 8 x 8 in one color, which names it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (value, value, value)).save(file)


def read(root: Path, name: str, download: bool = False, **keys: Any) -> Dataset:
    return load_dataset(resolve("dataset", name), str(root), download, {"size": 8, **keys})


def shown(split: Any) -> list[tuple[int, int]]:
    """The value and the label of each image."""
    return [(int(x[0, 0, 0]), int(y)) for x, y in zip(split.x[:], split.y, strict=True)]


def refusal(root: Path, name: str, kind: type[Exception] = ConfigError, **keys: Any) -> str:
    with pytest.raises(kind) as refused:
        read(root, name, **keys)
    return str(refused.value)


@pytest.fixture
def without_checksums(monkeypatch) -> Callable[[str], None]:
    """A function that makes a set's lists and archives have any checksum, as the tests' own files have."""

    def drop(name: str) -> None:
        record = sets.RECORDS[name]
        free = {key: [replace(one, md5=None) for one in getattr(record, key)] for key in ("lists", "archives", "loose")}
        monkeypatch.setitem(sets.RECORDS, name, replace(record, **free))

    return drop


def test_imagenet_r_with_the_lists_of_mammoth(tmp_path, without_checksums):
    """Labels are those of the lists: n02 is 0 though its folder is the second."""
    for wnid, first in (("n01", 10), ("n02", 20)):
        for n in range(3):
            draw(tmp_path / "imagenet-r" / wnid / f"art_{n}.png", first + n)
    train = "data: [data/imagenet-r/n02/art_1.png, data/imagenet-r/n01/art_0.png]\ntargets: [0, 1]\n"
    test = "data: [data/imagenet-r/n01/art_2.png]\ntargets: [1]\n"
    (tmp_path / "imagenet-r_train.yaml").write_text(train)
    (tmp_path / "imagenet-r_test.yaml").write_text(test)
    assert "imagenet-r_train.yaml has the MD5 digest" in refusal(tmp_path, "imagenet_r")
    without_checksums("imagenet_r")
    found = read(tmp_path, "imagenet_r")
    assert (shown(found.train), shown(found.test), found.names) == ([(21, 0), (10, 1)], [(12, 1)], ("n02", "n01"))
    assert found.doubts == (
        "dataset.path: found 3 images of imagenet_r, published are 30,000; are all there?",
        *found.doubts[1:],
    )
    (tmp_path / "imagenet-r" / "n01" / "art_2.png").unlink()
    assert "1 of the 1 test images are not there, the first" in refusal(tmp_path, "imagenet_r", MissingData)
    (tmp_path / "imagenet-r_test.yaml").write_text("data: [a]\ntargets: []\n")
    assert "imagenet-r_test.yaml cannot be read" in refusal(tmp_path, "imagenet_r")
    (tmp_path / "imagenet-r_test.yaml").unlink()
    missing = refusal(tmp_path, "imagenet_r", MissingData)
    assert "get imagenet-r_test.yaml" in missing
    assert "github.com/aimagelab/mammoth" in missing


def test_sets_without_a_split_draw_one(tmp_path):
    """0.2 of 5 images of each class; the same for any run."""
    for name, place in (
        ("imagenet_r", "imagenet-r"),
        ("imagenet_a", "imagenet-a"),
        ("eurosat", "EuroSAT_RGB"),
        ("resisc45", "NWPU-RESISC45"),
    ):
        for label, first in (("b", 20), ("a", 10)):
            for n in range(5):
                draw(tmp_path / place / label / f"{n}.png", first + n)
        keys = {} if name == "imagenet_a" else {"split": "drawn"}
        found = read(tmp_path, name, **keys)
        assert (len(found.train), len(found.test), found.names) == (8, 2, ("a", "b"))
        assert {(value // 10 - 1, label) for value, label in shown(found.train)} == {(0, 0), (1, 1)}
        assert {*shown(found.train)}.isdisjoint(shown(found.test))
        assert found.notes[0] == "there is no official split: 0.2 of each class, drawn with seed 0, is for testing"
        assert shown(read(tmp_path, name, **keys).test) == shown(found.test)
    for part, count in (("train", 2), ("test", 1)):  # as PILOT's archives have
        for n in range(count):
            draw(tmp_path / "imagenet-a-pilot" / part / "n01" / f"{n}.png", 30 + n + 10 * (part == "test"))
    found = read(tmp_path, "imagenet_a", path="imagenet-a-pilot")
    assert (shown(found.train), shown(found.test)) == ([(30, 0), (31, 0)], [(40, 0)])


def test_cub(tmp_path):
    folder = tmp_path / "CUB_200_2011"
    for n, (path, value) in enumerate((("001.Auk/x.png", 1), ("001.Auk/y.png", 2), ("002.Bee eater/z.png", 3)), 1):
        draw(folder / "images" / path, value)
        for name, line in (
            ("images.txt", f"{n} {path}"),
            ("image_class_labels.txt", f"{n} {int(path[:3])}"),
            ("train_test_split.txt", f"{n} {int(n != 2)}"),
        ):
            with (folder / name).open("a") as file:
                file.write(line + "\n")
    (folder / "classes.txt").write_text("1 001.Auk\n2 002.Bee eater\n")
    found = read(tmp_path, "cub200")
    assert (shown(found.train), shown(found.test)) == ([(1, 0), (3, 1)], [(2, 0)])
    assert found.names == ("001.Auk", "002.Bee eater")
    (folder / "image_class_labels.txt").write_text("1 1\n2 1\n3 9\n")
    assert "image 3 has the label '9' and the part '1', allowed: 1 to 2, and 0 or 1" in refusal(tmp_path, "cub200")


def test_cars(tmp_path, without_checksums):
    io_ = pytest.importorskip("scipy.io")
    folder = tmp_path / "stanford_cars"
    (folder / "devkit").mkdir(parents=True)

    def annotate(file: Path, rows: list[tuple[int, str]]) -> None:
        kind = [(key, object) for key in ("bbox_x1", "class", "fname")]
        array = np.array([(1, label, name) for label, name in rows], dtype=kind)
        io_.savemat(file, {"annotations": array})

    io_.savemat(folder / "devkit" / "cars_meta.mat", {"class_names": np.array(["AM General", "Acura"], object)})
    annotate(folder / "devkit" / "cars_train_annos.mat", [(2, "00001.png"), (1, "00002.png")])
    annotate(folder / "cars_test_annos_withlabels.mat", [(1, "00001.png")])
    draw(folder / "cars_train" / "00001.png", 1)
    draw(folder / "cars_train" / "00002.png", 2)
    draw(folder / "cars_test" / "00001.png", 3)
    assert "cars_test_annos_withlabels.mat has the MD5 digest" in refusal(tmp_path, "cars")
    without_checksums("cars")
    found = read(tmp_path, "cars")
    assert (shown(found.train), shown(found.test)) == ([(1, 1), (2, 0)], [(3, 0)])
    assert found.names == ("AM General", "Acura")
    annotate(folder / "cars_test_annos_withlabels.mat", [(3, "00001.png")])
    assert "has the label 3 in" in refusal(tmp_path, "cars")
    (folder / "cars_test_annos_withlabels.mat").unlink()
    assert "there is no file" in refusal(tmp_path, "cars", MissingData)


def test_domainnet(tmp_path):
    folder = tmp_path / "domainnet"
    for label, value in (("ant", 1), ("bee", 2)):
        draw(folder / "real" / label / "real_001.png", value)
        draw(folder / "real" / label / "real_002.png", value + 10)
    (folder / "real_train.txt").write_text("real/bee/real_001.png 1\nreal/ant/real_001.png 0\n")
    (folder / "real_test.txt").write_text("real/ant/real_002.png 0\n")
    found = read(tmp_path, "domainnet", domain="real")
    assert (shown(found.train), shown(found.test)) == ([(2, 1), (1, 0)], [(11, 0)])
    assert found.names == ("ant", "bee")
    missing = refusal(tmp_path, "domainnet", MissingData, domain="sketch")
    assert "there is no file" in missing
    assert "sketch_train.txt" in missing
    (folder / "real_test.txt").write_text("real/ant/real_002.png 1\n")
    assert "have the label 1 for bee and ant" in refusal(tmp_path, "domainnet", domain="real")
    (folder / "real_test.txt").write_text("real/ant/real_002.png\n")
    assert "allowed: lines of a path, a space and a label" in refusal(tmp_path, "domainnet", domain="real")


@pytest.mark.parametrize(
    ("name", "domain", "place"),
    [
        ("office_home", "art", "OfficeHomeDataset_10072016/Art"),
        ("office_home", "real_world", "OfficeHomeDataset_10072016/Real World"),
        ("office_home", "real_world", "OfficeHomeDataset_10072016/RealWorld"),
        ("office31", "dslr", "office31/dslr/images"),
    ],
)
def test_office(tmp_path, name, domain, place):
    for label, first in (("Mug", 20), ("Bike", 10)):
        for n in range(5):
            draw(tmp_path / place / label / f"{n}.png", first + n)
    found = read(tmp_path, name, domain=domain)
    assert (len(found.train), len(found.test), found.names) == (8, 2, ("Bike", "Mug"))
    other = "clipart" if name == "office_home" else "amazon"
    assert "dataset.domain: there is no folder" in refusal(tmp_path, name, MissingData, domain=other)


def test_core50(tmp_path):
    """11 sessions of 50 objects with one frame each, of the value of the session; 3, 7 and 10 are for testing."""
    for session in range(1, 12):
        for number in range(1, 51):
            draw(
                tmp_path / "core50_128x128" / f"s{session}" / f"o{number}" / f"C_{session:02}_{number:02}_000.png",
                session,
            )
    found = read(tmp_path, "core50", size=1)
    assert (len(found.train), len(found.test), found.classes) == (400, 150, 50)
    assert {value for value, _ in shown(found.test)} == {3, 7, 10}
    assert found.train.columns["session"].tolist() == [value for value, _ in shown(found.train)]
    assert found.names is not None
    assert found.names[:6] == (*(f"plug_adapter{n}" for n in range(1, 6)), "mobile_phone1")
    by_category = read(tmp_path, "core50", size=1, label="category")
    assert (by_category.classes, by_category.test.y[:11].tolist()) == (10, [0] * 5 + [1] * 5 + [2])


def test_eurosat(tmp_path):
    for label, value in (("Forest", 1), ("River", 2)):
        draw(tmp_path / "2750" / label / f"{label}_1.png", value)
        draw(tmp_path / "2750" / label / f"{label}_2.png", value + 10)
    lists = {
        "train": [["River/River_1.png", 1, "River"], ["Forest/Forest_1.png", 0, "Forest"]],
        "val": [["Forest/Forest_2.png", 0, "Forest"]],
        "test": [["River/River_2.png", 1, "River"]],
    }
    (tmp_path / "split.json").write_text(json.dumps(lists))
    found = read(tmp_path, "eurosat")
    assert (shown(found.train), shown(found.test)) == ([(2, 1), (1, 0)], [(12, 1)])
    assert found.names == ("Forest", "River")
    (tmp_path / "split.json").write_text("{}")
    assert "split.json cannot be read" in refusal(tmp_path, "eurosat")


def test_resisc45(tmp_path):
    for label, value in (("lake", 1), ("ship", 2)):
        draw(tmp_path / "NWPU-RESISC45" / label / f"{label}_001.png", value)
    for part, label in (("train", "lake"), ("test", "ship")):
        both = f"data: [{label}/{label}_001.png]\ntargets: [{int(label == 'ship')}]\n"
        (tmp_path / "NWPU-RESISC45" / f"resisc45_{part}.yaml").write_text(both)
    found = read(tmp_path, "resisc45")
    assert (shown(found.train), shown(found.test), found.names) == ([(1, 0)], [(2, 1)], ("lake", "ship"))


def pack(file: Path, members: dict[str, bytes]) -> str:
    """Write a zip or a tar with these files. Return its MD5 digest."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(file, "w") as packed:
            for name, content in members.items():
                one = tarfile.TarInfo(name)
                one.size = len(content)
                packed.addfile(one, io.BytesIO(content))
    return hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()


def picture(value: int) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (8, 8), (value, value, value)).save(written, "PNG")
    return written.getvalue()


IMAGES = {f"{label}/{n}.png": picture(first + n) for label, first in (("a", 10), ("b", 20)) for n in range(5)}


def test_an_archive_is_unpacked_once_and_whole(tmp_path, without_checksums):
    pack(tmp_path / "imagenet-a.tar", {f"imagenet-a/{name}": content for name, content in IMAGES.items()} | {"x": b"y"})
    assert "so it is damaged or another version, allowed: c3e55429" in refusal(tmp_path, "imagenet_a", download=True)
    assert "is not unpacked yet" in refusal(tmp_path, "imagenet_a", MissingData)
    without_checksums("imagenet_a")
    found = read(tmp_path, "imagenet_a", download=True)
    assert (len(found.train), len(found.test)) == (8, 2)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["imagenet-a", "imagenet-a.tar"]
    (tmp_path / "imagenet-a.tar").unlink()
    assert len(read(tmp_path, "imagenet_a").train) == 8


@pytest.mark.parametrize("bad", ["../outside.png", "/tmp/outside.png", "imagenet-a/../../outside.png"])
def test_an_archive_with_paths_outside_is_refused(tmp_path, without_checksums, bad):
    without_checksums("imagenet_a")
    pack(tmp_path / "imagenet-a.tar", {f"imagenet-a/{name}": content for name, content in IMAGES.items()} | {bad: b"x"})
    assert "which is outside its folder, allowed: paths inside" in refusal(tmp_path, "imagenet_a", download=True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["imagenet-a.tar"]
    assert not (tmp_path.parent / "outside.png").exists()


def test_two_processes_may_unpack_an_archive_together(tmp_path, monkeypatch):
    """The second one begins and ends while the first one reads the archive."""
    archive, file, read_files = Archive("x.zip", "x", None), tmp_path / "x.zip", archives._files
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("x/ant/1.png", b"a")

    def slowly(path: Path) -> Any:
        monkeypatch.setattr(archives, "_files", read_files)
        unpack(archive, file, tmp_path)
        return read_files(path)

    monkeypatch.setattr(archives, "_files", slowly)
    unpack(archive, file, tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x", "x.zip"]
    assert (tmp_path / "x" / "ant" / "1.png").read_bytes() == b"a"


def test_links_and_truncated_archives_are_refused(tmp_path, without_checksums):
    without_checksums("imagenet_a")
    file = tmp_path / "imagenet-a.tar"
    with tarfile.open(file, "w") as packed:
        link = tarfile.TarInfo("imagenet-a/a")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        packed.addfile(link)
    assert "which is a link or a device" in refusal(tmp_path, "imagenet_a", download=True)
    pack(file, {f"imagenet-a/{name}": content * 40 for name, content in IMAGES.items()})
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert "cannot be unpacked" in refusal(tmp_path, "imagenet_a", download=True)
    pack(file, {"other/a/1.png": b""})
    assert "has no folder imagenet-a, as the official archive has" in refusal(tmp_path, "imagenet_a", download=True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["imagenet-a.tar"]


def test_archives_of_domains_and_in_parts(tmp_path, without_checksums):
    without_checksums("domainnet")
    (tmp_path / "domainnet").mkdir()
    pack(tmp_path / "domainnet" / "sketch.zip", {f"sketch/{name}": content for name, content in IMAGES.items()})
    for part, n in (("train", 0), ("test", 1)):
        lines = [f"sketch/{label}/{n}.png {number}" for number, label in enumerate("ab")]
        (tmp_path / "domainnet" / f"sketch_{part}.txt").write_text("\n".join(lines))
    found = read(tmp_path, "domainnet", download=True, domain="sketch")
    assert (shown(found.train), shown(found.test)) == ([(10, 0), (20, 1)], [(11, 0), (21, 1)])


@pytest.mark.parametrize("name", sets.RECORDS)
def test_what_is_missing_says_which_file_from_where(tmp_path, name):
    with pytest.raises(MissingData) as refused:
        read(tmp_path, name)
    record, said = sets.RECORDS[name], str(refused.value)
    assert record.site in said
    assert f"put it into {tmp_path / record.archives[0].place if record.archives else tmp_path}" in said
    assert refused.value.declared is not None
    domain = next(iter(record.counts))
    assert (refused.value.declared.train, refused.value.declared.test) == record.counts[domain]
    if record.archives:
        assert record.archives[0].file in said
    assert "\n" not in said


def test_named_sets_are_read_from_the_disk_too(tmp_path):
    for name, content in IMAGES.items():
        (tmp_path / "imagenet-a" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "imagenet-a" / name).write_bytes(content)
    there, here = read(tmp_path, "imagenet_a", load="disk"), read(tmp_path, "imagenet_a")
    assert isinstance(there.train.x, Unread)
    assert (shown(there.train), shown(there.test)) == (shown(here.train), shown(here.test))


def test_a_list_is_a_file_and_where_it_is_published():
    for record in sets.RECORDS.values():
        assert all(isinstance(one, SplitList) and one.site for one in record.lists)


def test_download_takes_a_datasets_name(tmp_path, capsys, without_checksums):
    """It unpacks what is there, and says else which file is needed."""
    without_checksums("imagenet_a")
    options = [f"dataset.root={tmp_path}", "dataset.size=8"]
    assert main(["download", "imagenet_a", *options]) == 2
    assert "get imagenet-a.tar from https://people.eecs.berkeley.edu" in capsys.readouterr().err
    pack(tmp_path / "imagenet-a.tar", {f"imagenet-a/{name}": content for name, content in IMAGES.items()})
    assert main(["download", "imagenet_a", *options]) == 0
    assert capsys.readouterr().out == f"imagenet_a: 8 training and 2 test samples in {tmp_path}\n"


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("image_folder", {"path": "x", "load": "ram"}, "dataset.load: found 'ram', allowed: memory, disk or null"),
        ("cub200", {"decoded_gib": -1}, "dataset.decoded_gib: found -1, allowed: a number >= 0 or null"),
        ("office31", {"domain": "photo"}, "dataset.domain: found 'photo', allowed: amazon, dslr or webcam"),
        ("imagenet_r", {"split": "official"}, "dataset.split: found 'official', allowed: lists or drawn"),
    ],
)
def test_a_wrong_value_is_one_line(name, keys, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        load({**SMALL, "dataset": {"name": name, **keys}})
