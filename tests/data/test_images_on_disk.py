"""Images that are decoded as they are needed: the same bits as in memory; changed and damaged files, and full disks."""

import errno
import os
import pickle
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from raysim.config import load
from raysim.data import custom_files
from raysim.data.custom_files import image_folder
from raysim.data.dataset import Dataset, Unread
from raysim.data.decoded_rows import DecodedRows
from raysim.data.detection.yolo import yolo
from raysim.data.image_lists import image_list
from raysim.data.images_on_disk import ImagesOnDisk
from raysim.data.loading import load_dataset
from raysim.federation.data_digest import digest_data
from raysim.federation.doubts import describe_doubts
from raysim.federation.features import cache_features
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError, RunError

PER_CLASS = 9
VIT = {"name": "vit", "width": 8, "depth": 2, "heads": 2, "patch": 4, "input_size": None}


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """4 classes of 9 images, of random pixels, and of other sizes than 8 x 8."""
    draws = np.random.default_rng(0)
    for label in ("ant", "bee", "cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for n in range(PER_CLASS):
            picture = draws.integers(0, 256, (7 + n % 3, 10, 3), np.uint8)
            Image.fromarray(picture).save(tmp_path / "pets" / label / f"{n}.png")
    return tmp_path


def read(root: Path, **keys: Any) -> Dataset:
    return load_dataset(image_folder, str(root), False, {"path": "pets", "size": 8, **keys})


def config(root: Path, **keys: Any) -> Any:
    return load(
        {
            "name": "pets",
            "dataset": {"name": "image_folder", "path": "pets", "size": 8, "root": str(root), **keys},
            "scenario": {"kind": "class_incremental", "tasks": 2},
            "clients": {"count": 2},
            "methods": {"er": {}},
            "model": {"name": "mlp", "hidden": [5]},
            "training": {"rounds_per_task": 2, "batch_size": 4},
            "logging": {"tensorboard": False},
        }
    )


def test_images_of_the_disk_are_those_of_the_memory(pets):
    here, there = read(pets), read(pets, load="disk")
    assert isinstance(there.train.x, Unread)
    assert isinstance(here.train.x, np.ndarray)
    for split, other in ((here.train, there.train), (here.test, there.test)):
        assert np.array_equal(split.y, other.y)
        assert (split.x.shape, split.x.dtype) == (other.x.shape, other.x.dtype)
        for _ in range(2):  # decoded, and then from the file
            assert np.array_equal(split.x, other.x[:])
    rows = np.array([3, 0, 3])
    assert np.array_equal(here.train.x[rows], there.train.x[rows])
    assert np.array_equal(here.train.x[5], there.train.x[5])
    is_even = np.arange(len(here.train)) % 2 == 0
    assert np.array_equal(here.train.take(is_even).x, there.train.take(is_even).x[:])


def test_a_run_has_the_same_bits_for_any_hosts(pets, simulate):
    expected = simulate(config(pets, normalize="standard", augment=["crop", "flip"])).sha256
    for places in (None, [[0], [1]]):
        for gib in (None, 0):
            disk = config(pets, normalize="standard", augment=["crop", "flip"], load="disk", decoded_gib=gib)
            assert simulate(disk, places=places).sha256 == expected


def test_a_pickled_table_reads_the_same_file(pets):
    x = read(pets, load="disk").train.x
    again = pickle.loads(pickle.dumps(x))
    assert np.array_equal(x[:], again[:])
    assert x.digest == again.digest


def test_decoded_images_are_kept_and_the_rest_is_decoded_each_time(pets, monkeypatch):
    decoded: list[str] = []
    real = ImagesOnDisk.__module__
    original = __import__(real, fromlist=["decode"]).decode
    monkeypatch.setattr(f"{real}.decode", lambda picture, *a: (decoded.append(picture.name), original(picture, *a))[1])
    x = read(pets, load="disk").train.x
    x[:], x[:]
    assert len(decoded) == len({*decoded}) == len(x)
    decoded.clear()
    half = 18 * 3 * 8 * 8 / 2**30  # of the 36 images
    x = read(pets, load="disk", decoded_gib=half, background="black").train.x
    x[:], x[:]
    again = len(decoded) - len(x)
    assert 0.3 * len(x) < again < 0.7 * len(x)


def test_rows_without_a_whole_record_are_decoded_again(pets):
    found = read(pets, load="disk").train.x
    expected = found[:]
    (pixels,) = (pets / "decoded").glob("*.pixels")
    content = bytearray(pixels.read_bytes())
    content[3 * 8 * 8 * 2 + 5] ^= 1  # one bit of the third image
    pixels.write_bytes(content)
    assert np.array_equal(found[:], expected)
    assert pixels.read_bytes() != bytes(content)
    (rows,) = (pets / "decoded").glob("*.rows")
    os.truncate(rows, 24)  # in the second record
    os.truncate(pixels, 100)
    assert np.array_equal(found[:], expected)


def test_a_file_that_changes_ends_the_run(pets):
    x = read(pets, load="disk").train.x
    file = x.path(0)
    status = os.stat(file)
    x[0]
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(RunError, match=f"{file} has changed since the run began; put that file back"):
        x[0]
    file.unlink()
    with pytest.raises(RunError, match="cannot be read any more"):
        x[0]


def test_other_content_of_the_same_size_and_time_is_noticed_when_it_is_read_again(pets):
    x = read(pets, load="disk", decoded_gib=0).train.x
    file = x.path(0)
    x[0]
    status, content = os.stat(file), bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(RunError, match="has changed since the run began"):
        x[0]


def test_damaged_files_and_16_bits_are_one_line(pets):
    (pets / "pets" / "ant" / "0.png").write_bytes(b"no image")
    Image.fromarray(np.full((8, 8), 4000, np.uint16)).save(pets / "pets" / "ant" / "1.png")
    x, test = (split.x for split in (read(pets, load="disk").train, read(pets, load="disk").test))
    said = []
    for images in (x, test):
        for row in range(len(images)):
            try:
                images[row]
            except ConfigError as error:
                said.append(str(error))
    assert any("0.png cannot be read as an image (cannot identify its format)" in line for line in said)
    deep_color = b"P6 8 8 65535\n" + bytes(range(256)) + bytes(128)
    (pets / "pets" / "bee" / "2.ppm").write_bytes(deep_color)
    found = read(pets, load="disk")
    places = [(x, row) for x in (found.train.x, found.test.x) for row in range(len(x))]
    images, deep = next((x, row) for x, row in places if x.path(row).suffix == ".ppm")
    with pytest.raises(ConfigError, match=r"2\.ppm has 16 bits"):
        images[deep]
    assert any(
        "1.png has 16 bits, which depend on the largest value of all images, allowed: memory" in line for line in said
    )


def test_a_full_disk_is_one_line_and_leaves_no_row_that_looks_whole(pets, monkeypatch):
    x = read(pets, load="disk").train.x
    written, room = os.pwrite, [300]

    def write(handle: int, content: Any, place: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = content[: room[0]]
        room[0] -= len(part)
        return written(handle, part, place)

    monkeypatch.setattr("os.pwrite", write)
    with pytest.raises(
        RunError, match=r"decoded images cannot be written to .* \(No space left on device\); make room"
    ):
        x[:]
    monkeypatch.undo()
    assert np.array_equal(x[:], read(pets).train.x)


def test_a_row_is_whole_once_its_record_is_written(tmp_path):
    rows = DecodedRows(tmp_path / "some", (2, 2))
    assert rows.record(3) == (0, 0, 0)
    rows.write(3, 7, np.array([[1, 2], [3, 4]], np.uint8))
    content, checksum, known = DecodedRows(tmp_path / "some", (2, 2)).record(3)
    assert (content, known) == (7, 2)
    assert rows.read(3, checksum).tolist() == [[1, 2], [3, 4]]
    assert rows.read(2, checksum) is None


def test_null_is_the_disk_where_the_memory_is_too_small(pets, monkeypatch):
    assert isinstance(read(pets).train.x, np.ndarray)
    monkeypatch.setattr("raysim.data.decoding.fits_into_memory", lambda nbytes: nbytes < 36 * 3 * 8 * 8)
    found = read(pets)
    assert isinstance(found.train.x, Unread)
    assert any(
        note.startswith("images are decoded as they are needed (load: disk), 0.0 GiB; all") for note in found.notes
    )


def test_the_digest_and_the_doubts_decode_nothing(pets, monkeypatch):
    federation = build_federation(config(pets, load="disk"))
    monkeypatch.setattr("raysim.data.images_on_disk.ImageStore.read", None)
    before = digest_data(federation)
    describe_doubts(federation)
    file = federation.dataset.train.x.path(0)
    os.utime(file, ns=(1, 1))
    assert digest_data(build_federation(config(pets, load="disk"))) != before


def test_a_folder_is_searched_once_until_it_changes(pets, monkeypatch):
    """Its list is of the time when all folders were older than two seconds: these are made old here."""
    for place in (pets / "pets", *(pets / "pets").iterdir()):
        os.utime(place, ns=(1, 10**9))
    searched: list[Path] = []
    searching = custom_files.read_class_folders
    monkeypatch.setattr(
        custom_files, "read_class_folders", lambda folder, *a: (searched.append(folder), searching(folder, *a))[1]
    )
    first, second = (read(pets, load="disk") for _ in range(2))
    assert len(searched) == 1
    assert [first.train.x.path(row) for row in range(28)] == [second.train.x.path(row) for row in range(28)]
    assert (first.names, first.notes, first.doubts) == (second.names, second.notes, second.doubts)
    assert np.array_equal(first.test.y, second.test.y)
    assert len(read(pets, load="disk", test_fraction=0.5).test) > len(second.test)  # another list
    draw = np.zeros((8, 8, 3), np.uint8)
    Image.fromarray(draw).save(pets / "pets" / "ant" / "new.png")
    assert sum(map(len, (read(pets, load="disk").train, read(pets, load="disk").test))) == 4 * PER_CLASS + 1
    for index in (pets / "decoded").glob("*.npz"):
        index.write_bytes(index.read_bytes()[:-9])
    assert len(read(pets, load="disk").train) == len(read(pets).train)


def test_a_folder_that_has_only_now_changed_gets_no_list(pets):
    read(pets, load="disk")
    assert not [*(pets / "decoded").glob("*.npz")]


def test_domains_are_joined_without_decoding_them(pets, simulate):
    """Two domains of the same classes; the second is half of the first one's images, turned."""
    for label in ("ant", "bee", "cat", "dog"):
        (pets / "turned" / label).mkdir(parents=True)
        for n in range(4):
            picture = Image.open(pets / "pets" / label / f"{n}.png").rotate(180)
            picture.save(pets / "turned" / label / f"{n}.png")

    def over(**keys: Any) -> Any:
        sets = [{"name": "image_folder", "path": path, "size": 8, **keys} for path in ("pets", "turned")]
        shift = {"kind": "domain_incremental", "tasks": 2, "shift": {"domains": sets}}
        other = {"name": "image_folder", "path": "pets", "size": 8, "root": str(pets), **keys}
        return load({**config(pets).model_dump(), "dataset": other, "scenario": shift})

    disk, memory = build_federation(over(load="disk")), build_federation(over())
    assert isinstance(disk.dataset.train.x, Unread)
    assert np.array_equal(disk.dataset.train.x[:], memory.dataset.train.x)
    assert np.array_equal(disk.dataset.test.x[:], memory.dataset.test.x)
    assert simulate(over(load="disk")).sha256 == simulate(over()).sha256


def test_lists_and_boxes_are_read_from_the_disk_too(pets):
    for part, n in (("train", 0), ("test", 1)):
        lines = [f"{label}/{n}.png {number}" for number, label in enumerate(("ant", "bee", "cat", "dog"))]
        (pets / f"{part}.txt").write_text("\n".join(lines))
    keys = {"path": "pets", "train": "train.txt", "test": "test.txt", "size": 8}
    found = {where: load_dataset(image_list, str(pets), False, {**keys, "load": where}) for where in ("memory", "disk")}
    assert isinstance(found["disk"].test.x, Unread)
    assert np.array_equal(found["memory"].test.x, found["disk"].test.x[:])
    for part, n in (("train", 0), ("val", 1)):
        (pets / "boxes" / "images" / part).mkdir(parents=True)
        (pets / "boxes" / "labels" / part).mkdir(parents=True)
        Image.open(pets / "pets" / "ant" / f"{n}.png").save(pets / "boxes" / "images" / part / "1.png")
        (pets / "boxes" / "labels" / part / "1.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    keys = {"path": "boxes", "size": 8, "classes": ("ant",)}
    found = {where: load_dataset(yolo, str(pets), False, {**keys, "load": where}) for where in ("memory", "disk")}
    assert isinstance(found["disk"].train.x, Unread)
    assert np.array_equal(found["memory"].train.x, found["disk"].train.x[:])


def test_features_of_images_on_the_disk(pets):
    """The files of features have other names, as the digest is of the table; their content has the same bits."""
    found = {}
    for where in ("memory", "disk"):
        model = {**VIT, "adapters": {"rank": 2, "where": ["blocks.1.*"]}, "cache": True}
        settings = load({**config(pets, load=where).model_dump(), "model": model})
        found[where] = cache_features(settings, build_federation(settings))
    assert np.array_equal(found["memory"].dataset.train.x, found["disk"].dataset.train.x)


def test_folders_whose_files_have_the_same_names_sizes_and_times_share_nothing(tmp_path):
    """BMPs of one size, unpacked from archives with a fixed time: only their folders and their pixels differ."""
    draws, found = np.random.default_rng(0), dict[str, Any]()
    for folder in ("photo", "sketch"):
        for label in ("ant", "bee"):
            (tmp_path / folder / label).mkdir(parents=True)
            for n in range(4):
                file = tmp_path / folder / label / f"{n}.bmp"
                Image.fromarray(draws.integers(0, 256, (8, 8, 3), np.uint8)).save(file)
                os.utime(file, (1e9, 1e9))
        here, there = (read(tmp_path, path=folder, load=where).train.x for where in ("memory", "disk"))
        assert np.array_equal(here, there[:])
        model = {**VIT, "adapters": {"rank": 2, "where": ["blocks.1.*"]}, "cache": True}
        settings = load({**config(tmp_path, path=folder, load="disk").model_dump(), "model": model})
        found[folder] = cache_features(settings, build_federation(settings)).dataset.train.x
    assert not np.array_equal(found["photo"], found["sketch"])


def test_processes_that_read_together_and_one_that_is_killed_leave_whole_rows(pets):
    """Three processes read all images in other orders; one is killed at once, and what it wrote is whole or unused."""
    expected, x = read(pets).train.x, read(pets, load="disk").train.x
    children = []
    for seed in range(3):
        child = os.fork()
        if not child:
            order = np.random.default_rng(seed).permutation(len(x))
            os._exit(int(not np.array_equal(x[order], expected[order])))
        children.append(child)
    os.kill(children[0], signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes[1:] == [0, 0]
    assert np.array_equal(x[:], expected)
