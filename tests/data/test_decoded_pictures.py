"""Images of every kind become the same arrays in every loader: orientation, transparency, bits."""

import contextlib
import json
import random
import re
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from raysim.config import load
from raysim.data.custom_files import image_folder
from raysim.data.dataset import Dataset
from raysim.data.detection.carla import carla
from raysim.data.detection.coco import coco
from raysim.data.detection.yolo import yolo
from raysim.data.image_lists import image_list
from raysim.data.pictures import EncodedImage, Look, decode, read_sizes
from raysim.system.errors import ConfigError

CONFIG = {
    "name": "pictures",
    "scenario": {"kind": "class_incremental", "tasks": 1},
    "clients": {"count": 1},
    "model": {"name": "mlp"},
    "training": {"rounds_per_task": 1},
}
STORED = np.array([[10, 20, 30], [40, 50, 60]], np.uint8)
UPRIGHT = {
    1: [[10, 20, 30], [40, 50, 60]],
    2: [[30, 20, 10], [60, 50, 40]],  # mirrored
    3: [[60, 50, 40], [30, 20, 10]],  # half a turn
    4: [[40, 50, 60], [10, 20, 30]],  # upside down
    5: [[10, 40], [20, 50], [30, 60]],  # rows become columns
    6: [[40, 10], [50, 20], [60, 30]],  # a quarter turn clockwise: the left column becomes the first row
    7: [[60, 30], [50, 20], [40, 10]],  # the same, mirrored
    8: [[30, 60], [20, 50], [10, 40]],  # a quarter turn counterclockwise: the right column becomes the first row
}
"""EXIF's orientation -> the upright pixels of STORED (EXIF 2.32, table of tag 274: where row 0 and column 0 are)."""


def exif(orientation: int) -> Image.Exif:
    found = Image.Exif()
    found[274] = orientation
    return found


def save(path: Path, pixels: Any, orientation: int = 1, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(path, exif=exif(orientation), **options)
    return path


def grays(path: Path, size: int, bits: int | None = None, as_stored: bool = False) -> list[list[int]]:
    """The gray pixels of a square image at its own size."""
    pixels, _ = decode(EncodedImage("it", path, as_stored), Look(size, True, (255, 255, 255)), bits)
    assert pixels is not None
    return pixels[0].tolist()


def read(root: Path, size: int, **keys: Any) -> Dataset:
    """The folder `a` as a dataset of one class: 1 image of 4 for testing, all sorted by name."""
    return image_folder(root, False, path=".", size=size, **{"grey": True, "test_fraction": 0.25, **keys})


def rows(dataset: Dataset) -> dict[int, list[int]]:
    """The images of a dataset by their first value."""
    return {int(x.flat[0]): x[0].ravel().tolist() for split in (dataset.train, dataset.test) for x in split.x}


@pytest.mark.parametrize("suffix", ["png", "tif", "webp", "jpg"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_images_are_upright(tmp_path: Path, orientation: int, suffix: str) -> None:
    """Each pixel is a square of 8 x 8, which JPEG keeps. The resized image is 6 x 6: nearest whole squares differ
    by a bilinear filter's blur only, which a turn commutes with. So the turned image is compared to a plain one."""
    options = {"lossless": True} if suffix == "webp" else {}
    big = np.kron(STORED, np.ones((8, 8), np.uint8))
    turned = save(tmp_path / f"turned.{suffix}", big, orientation, **options)
    plain = save(tmp_path / "plain.png", np.kron(np.array(UPRIGHT[orientation], np.uint8), np.ones((8, 8), np.uint8)))
    close = 2 if suffix == "jpg" else 0  # of 255, JPEG's loss
    assert np.abs(np.array(grays(turned, 6)) - np.array(grays(plain, 6))).max() <= close
    stored = save(tmp_path / "stored.png", big)
    assert np.abs(np.array(grays(turned, 6, as_stored=True)) - np.array(grays(stored, 6))).max() <= close
    high, wide = np.array(UPRIGHT[orientation]).shape
    sizes = read_sizes(turned)
    assert (sizes.stored, sizes.upright) == ((24, 16), (8 * wide, 8 * high))


def test_a_pngs_orientation_may_come_after_its_pixels(tmp_path: Path) -> None:
    """PNG allows eXIf anywhere. The chunk is moved from its place before IDAT to the end, before IEND of 12 bytes."""
    file = save(tmp_path / "a.png", STORED, 6)
    content = file.read_bytes()
    start = content.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(content[start : start + 4], "big")
    late = tmp_path / "late.png"
    late.write_bytes(content[:start] + content[end:-12] + content[start:end] + content[-12:])
    assert read_sizes(late).upright == read_sizes(file).upright == (2, 3)
    assert grays(late, 3) == grays(file, 3)


def test_every_loader_turns_images(tmp_path: Path) -> None:
    """The left half of the stored image is white. Orientation 6 makes the upper half white: rows of 255 and 0."""
    stored = np.zeros((16, 16), np.uint8)
    stored[:, :8] = 255
    for k in range(4):
        save(tmp_path / "folder/a" / f"{k}.png", stored, 6)
        save(tmp_path / "images" / ("train" if k % 2 else "val") / f"{k}.png", stored, 6)
        save(tmp_path / "drive/car" / f"{k}.png", stored, 6)
        (tmp_path / "drive/car" / f"{k}.xml").write_text(
            "<annotation><size><width>16</width><height>16</height></size><object><name>car</name><bndbox>"
            "<xmin>0</xmin><ymin>0</ymin><xmax>8</xmax><ymax>8</ymax></bndbox></object></annotation>"
        )
        label = tmp_path / "labels" / ("train" if k % 2 else "val") / f"{k}.txt"
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text("0 0.5 0.5 1 1\n")
    for part, k in (("train2017", 1), ("val2017", 0)):
        save(tmp_path / "coco" / part / f"{k}.png", stored, 6)
        (tmp_path / "coco/annotations").mkdir(exist_ok=True)
        (tmp_path / f"coco/annotations/instances_{part}.json").write_text(
            json.dumps(
                {
                    "images": [{"id": 1, "file_name": f"{k}.png", "width": 16, "height": 16}],
                    "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 8, 8]}],
                    "categories": [{"id": 1, "name": "car"}],
                }
            )
        )
    (tmp_path / "train.txt").write_text("0.png 0\n1.png 0\n")
    (tmp_path / "test.txt").write_text("2.png 0\n")
    lists = {"path": "folder/a", "train": "train.txt", "test": "test.txt"}
    loaded = [
        image_folder(tmp_path, False, path="folder", size=16),
        image_list(tmp_path, False, size=16, **lists),
        coco(tmp_path, False, path="coco", size=16),
        yolo(tmp_path, False, path=".", classes=("car",), size=16),
        carla(tmp_path, False, path="drive", size=16),
    ]
    for dataset in loaded:
        for x in (*dataset.train.x, *dataset.test.x):
            assert (x[0, :8] == 255).all()
            assert (x[0, 8:] == 0).all()
        count = len(dataset.train) + len(dataset.test)
        assert f"turned {count} images upright, as their EXIF data says" in dataset.notes


def test_damaged_exif_data_does_not_turn_an_image(tmp_path: Path) -> None:
    Image.fromarray(STORED).save(tmp_path / "a.jpg", exif=b"Exif\x00\x00rubbish", quality=100)
    assert read_sizes(tmp_path / "a.jpg").upright == (3, 2)
    assert len(grays(tmp_path / "a.jpg", 3)) == 3


INK = np.array([[0, 0], [0, 0]], np.uint8)
ALPHA = np.array([[255, 0], [51, 255]], np.uint8)  # 51/255 = 1/5


def ink(mode: str) -> Image.Image:
    """Black ink, whose shape is in the alpha channel."""
    black, alpha = Image.fromarray(INK), Image.fromarray(ALPHA)
    return Image.merge(mode, [black] * (len(mode) - 1) + [alpha])


@pytest.mark.parametrize(
    ("mode", "suffix"), [("RGBA", "png"), ("LA", "png"), ("RGBA", "tif"), ("LA", "tif"), ("RGBA", "webp")]
)
def test_transparent_pixels_show_the_background(tmp_path: Path, mode: str, suffix: str) -> None:
    """Black at alpha a over a background b is b (1 - a): 0, b, 4/5 b, 0. White is 255, and 200 is 160 at 4/5."""
    options = {"lossless": True} if suffix == "webp" else {}
    for k in range(4):
        save(tmp_path / "a" / f"{k}.{suffix}", ink(mode), **options)
    assert rows(read(tmp_path, 2)) == {0: [0, 255, 204, 0]}
    assert rows(read(tmp_path, 2, background=(200, 200, 200))) == {0: [0, 200, 160, 0]}
    assert rows(read(tmp_path, 2, background="black")) == {0: [0, 0, 0, 0]}
    colors = read(tmp_path, 2, background=(0, 100, 200), grey=False).train.x[0]
    assert colors.reshape(3, 4).tolist() == [[0, 0, 0, 0], [0, 100, 80, 0], [0, 200, 160, 0]]
    assert "put 4 images with transparent pixels on dataset.background" in read(tmp_path, 2).notes


@pytest.mark.parametrize("suffix", ["png", "gif"])
def test_a_transparent_color_of_a_palette_shows_the_background(tmp_path: Path, suffix: str) -> None:
    palette = Image.fromarray(np.array([[0, 1], [2, 1]], np.uint8), "L").convert("P")
    palette.putpalette([10, 10, 10, 20, 20, 20, 30, 30, 30])
    for k in range(4):
        save(tmp_path / "a" / f"{k}.{suffix}", palette, transparency=1)
    assert rows(read(tmp_path, 2)) == {10: [10, 255, 30, 255]}


@pytest.mark.parametrize(
    ("mode", "bits", "pixels", "transparent", "expected"),
    [
        ("L", 8, [[10, 20], [30, 20]], 20, [10, 255, 30, 255]),
        ("RGB", 8, [[10, 20], [30, 20]], (20, 20, 20), [10, 255, 30, 255]),
        ("1", 1, [[0, 255], [255, 0]], 0, [255, 255, 255, 255]),
        ("I;16", 16, [[10 << 8, 20 << 8], [30 << 8, 65535]], 20 << 8, [10, 255, 30, 255]),
    ],
)
def test_a_single_transparent_color_shows_the_background(
    tmp_path: Path, mode: str, bits: int, pixels: list[list[int]], transparent: Any, expected: list[int]
) -> None:
    """PNG's chunk tRNS names one color of images without a palette and without an alpha channel."""
    if mode == "I;16":
        image = Image.fromarray(np.array(pixels, np.uint16))
    else:
        image = Image.fromarray(np.array(pixels, np.uint8)).convert(mode)
    file = save(tmp_path / "a.png", image, transparency=transparent)
    assert np.ravel(grays(file, 2, bits=16)).tolist() == expected


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def test_a_transparent_gray_of_four_bits_is_one_of_its_file(tmp_path: Path) -> None:
    """Grays of 4 bits, made by hand: 3 of 15 is 51 of 255. Pillow compares 3 to 51."""
    header = struct.pack(">IIBBBBB", 2, 2, 4, 0, 0, 0, 0)
    lines = zlib.compress(b"\0\x13\0\x35")  # 1, 3 and 3, 5
    parts = chunk(b"IHDR", header), chunk(b"tRNS", b"\0\3"), chunk(b"IDAT", lines), chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    assert grays(tmp_path / "a.png", 2) == [[17, 255], [255, 85]]


def test_opaque_images_with_an_alpha_channel_are_what_they_were(tmp_path: Path) -> None:
    colors = np.random.default_rng(0).integers(0, 256, (9, 9, 3), np.uint8)
    for k in range(4):
        save(tmp_path / "a" / f"{k}.png", np.dstack([colors, np.full((9, 9), 255, np.uint8)]))
    found = read(tmp_path, 5, grey=False)
    assert (found.train.x[0] == np.asarray(Image.fromarray(colors).resize((5, 5), 2)).transpose(2, 0, 1)).all()
    assert not any("transparent" in note for note in found.notes)


def deep(path: Path, values: Any, suffix: str = "png", largest: int = 65535) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.array(values, np.uint16)
    if suffix == "pgm":
        content = pixels.astype(">u2").tobytes()
        path.write_bytes(b"P5\n%d %d\n%d\n" % (*pixels.shape[::-1], largest) + content)
    else:
        Image.fromarray(pixels.astype(">u2") if suffix == "big.tif" else pixels).save(path)


@pytest.mark.parametrize("suffix", ["png", "tif", "big.tif", "pgm"])
@pytest.mark.parametrize(
    ("largest", "bits"), [(255, 8), (256, 10), (1023, 10), (4095, 12), (4096, 14), (16383, 14), (16384, 16)]
)
def test_16_bits_are_divided_by_the_bits_of_the_training_images(
    tmp_path: Path, largest: int, bits: int, suffix: str
) -> None:
    """Values v become v // 2**(bits - 8). One training image has the largest value, the others are dark."""
    for part in ("train", "test"):
        for k in range(2):
            bright = largest if part == "train" and k else 100
            deep(tmp_path / part / "a" / f"{k}.{suffix}", [[bright, 40], [100, 0]], suffix)
    found = read(tmp_path, 2)
    by = 2 ** (bits - 8)
    assert found.train.x[1].ravel().tolist() == [largest // by, 40 // by, 100 // by, 0]
    assert found.test.x[1].ravel().tolist() == [100 // by, 40 // by, 100 // by, 0]
    note = f"divided 4 images of 16 bits by {by}: {bits} bits hold the largest training value, {largest:,}"
    assert note in found.notes


def test_a_pgms_own_largest_value_is_white(tmp_path: Path) -> None:
    """4095 of 4095 is white, and 2048 of 4095 is half of it."""
    for k in range(4):
        deep(tmp_path / "a" / f"{k}.pgm", [[4095, 2048], [0, 0]], "pgm", 4095)
    assert rows(read(tmp_path, 2)) == {255: [255, 128, 0, 0]}


def test_brighter_test_images_become_white_with_a_warning(tmp_path: Path) -> None:
    """1023 of 10 bits: 2000 // 4 is above 255."""
    for part, largest in (("train", 1023), ("test", 2000)):
        deep(tmp_path / part / "a" / "0.png", [[largest, 400], [0, 0]])
    found = read(tmp_path, 2)
    assert found.test.x[0].ravel().tolist() == [255, 100, 0, 0]
    where = f"in 1 image for testing, the first {tmp_path}/test/a/0.png"
    assert found.doubts == (f"found values of 1,024 and more {where}; they become white, as training images have none",)


def write_deep_color(path: Path, value: int) -> None:
    """A PNG of 16-bit colors, which Pillow reads and does not write: one pixel of this value, one black."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = zlib.compress(b"\0" + 3 * struct.pack(">H", value) + bytes(6))
    parts = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)), chunk(b"IDAT", lines), chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def test_colors_of_16_bits_keep_their_upper_8_or_are_refused(tmp_path: Path) -> None:
    """0xabcd is 0xab of 8 bits. Of 12 bits in 16, Pillow's upper 8 are 4 bits of color."""
    for k in range(4):
        write_deep_color(tmp_path / "a" / f"{k}.png", 0xABCD)
    assert read(tmp_path, 2, grey=False).train.x[0, :, 0].tolist() == [[0xAB, 0]] * 3
    for k in range(4):
        write_deep_color(tmp_path / "a" / f"{k}.png", 4095)
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, 2)
    assert str(refused.value).endswith(
        "has colors of 16 bits, and the largest value of the dataset needs 12 only, allowed: colors of 8 bits; divide "
        "them by 16 and save them again"
    )


def test_colors_of_16_bits_in_a_ppm_are_not_made_dark(tmp_path: Path) -> None:
    """Pillow divides by the file's own largest value: 4095 of 4095 is white, and 3000 of 65535 is 12 of 255."""
    (tmp_path / "a").mkdir()
    for largest, largest_value in ((4095, 4095), (65535, 3000)):
        for k in range(4):
            pixels = np.array([largest_value, 2048, 0, 0, 0, 0], ">u2").tobytes()
            (tmp_path / "a" / f"{k}.ppm").write_bytes(b"P6 2 1 %d\n" % largest + pixels)
        if largest == 4095:
            assert read(tmp_path, 2, grey=False).train.x[0, :, 0].tolist() == [[255, 0], [128, 0], [0, 0]]
    with pytest.raises(ConfigError, match="has colors of 16 bits, and the largest value of the dataset needs 12 only"):
        read(tmp_path, 2)


def tiff(**changes: int) -> bytes:
    """One pixel of 16-bit colors in three planes, without compression, as TIFF 6.0 has it; all values are 7."""
    fields = {256: 1, 257: 1, 258: 16, 259: 1, 262: 2, 277: 3, 278: 1, 284: 2} | {
        int(tag[1:]): value for tag, value in changes.items()
    }
    samples = fields[277]
    behind = 10 + 12 * 10 + 4  # header of 8 bytes, the number of fields, 10 fields, no next directory
    arrays = {258: [16] * samples, 273: [behind + 18 + 2 * k for k in range(samples)], 279: [2] * samples}
    content, extra, place = b"", b"", behind
    for tag in sorted({*fields, *arrays}):
        values = arrays.get(tag, [fields.get(tag, 0)])
        packed = struct.pack(f"<{len(values)}H", *values)
        if len(packed) > 4:
            extra, packed, place = extra + packed, struct.pack("<I", place), place + len(packed)
        content += struct.pack("<HHI", tag, 3, len(values)) + packed.ljust(4, b"\0")
    head = b"II*\0" + struct.pack("<IH", 8, 10)
    return (head + content + bytes(4) + extra).ljust(behind + 18, b"\0") + struct.pack("<3H", 7, 7, 7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "found colors of 16 bits in separate planes, allowed: a pixel's colors together"),
        ({"t262": 0, "t277": 1, "t284": 1}, "found 16 bits with white as 0, allowed: black as 0"),
    ],
)
def test_tiffs_that_pillow_misreads_are_refused(changes: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        decode(EncodedImage("it", tiff(**changes)), Look(1, True, (0, 0, 0)), 16)
    assert str(refused.value) == f"dataset.path: it cannot be read as an image ({words}); replace or remove it"


def test_a_tiff_of_16_bits_made_by_hand_is_read() -> None:
    """What `tiff` writes is a TIFF: one gray value, 7, whose 8 bits of 8 are 7."""
    pixels, _ = decode(EncodedImage("it", tiff(t262=1, t277=1, t284=1)), Look(1, True, (0, 0, 0)), 8)
    assert pixels is not None
    assert pixels.tolist() == [[[7]]]


@pytest.mark.parametrize("mode", ["I", "F"])
def test_32_bits_are_refused(tmp_path: Path, mode: str) -> None:
    for k in range(2):
        save(tmp_path / "a" / f"{k}.tif", Image.new(mode, (2, 2), 7))
    with pytest.raises(
        ConfigError, match=rf"\.tif cannot be read as an image \(found pixels of 32 bits \(mode {mode}\)"
    ):
        read(tmp_path, 2)


def test_images_of_a_single_color_are_warned_of(tmp_path: Path) -> None:
    """Also those that transparency hides: white ink on white. An image is not one of them for being resized to one."""
    for k in range(3):
        save(tmp_path / "a" / f"{k}.png", STORED)
    assert read(tmp_path, 1).doubts == ()
    save(tmp_path / "a" / "3.png", Image.new("RGB", (3, 3), (1, 2, 3)))
    save(tmp_path / "a" / "4.png", Image.merge("LA", [Image.new("L", (2, 2), 255), Image.fromarray(ALPHA)]))
    found = read(tmp_path, 2)
    words = rf"found a single color in 2 images of 5, the first {tmp_path}/a/[34].png; look at it, and remove it if .*"
    assert [bool(re.fullmatch(words, doubt)) for doubt in found.doubts] == [True]


def test_only_the_first_frame_is_used_with_a_note(tmp_path: Path) -> None:
    frames = [Image.fromarray(STORED), Image.fromarray(255 - STORED)]
    for k, suffix in enumerate(("gif", "tif", "png", "webp")):
        options = {"lossless": True} if suffix == "webp" else {}
        path = tmp_path / "a" / f"{k}.{suffix}"
        path.parent.mkdir(exist_ok=True)
        frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    found = read(tmp_path, 3)
    assert "used the first frame or page of 4 images with several" in found.notes
    save(tmp_path / "plain.png", STORED)
    assert rows(found) == {10: np.ravel(grays(tmp_path / "plain.png", 3)).tolist()}


@pytest.mark.parametrize("value", ["red", [1, 2], [0, 0, 256], 7])
def test_other_backgrounds_are_refused(value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        load({**CONFIG, "dataset": {"name": "image_folder", "path": ".", "background": value}})
    words = "allowed: white, black or three whole numbers from 0 to 255, such as [0, 128, 255]"
    assert str(refused.value).startswith("dataset.background")
    assert words in str(refused.value)
    for allowed in ("black", [0, 128, 255]):
        load({**CONFIG, "dataset": {"name": "image_folder", "path": ".", "background": allowed}})


@pytest.mark.parametrize("count", [300, pytest.param(2_000, marks=pytest.mark.soak)])
def test_damaged_images_are_refused_with_their_name(tmp_path: Path, count: int) -> None:
    """Bytes that are cut or changed give an image or one error, and no error of Pillow's."""
    draw = random.Random(0)
    sources = [
        save(tmp_path / f"of.{suffix}", Image.fromarray(np.dstack([STORED] * 4)).convert(mode), 6).read_bytes()
        for suffix, mode in (
            ("png", "RGBA"),
            ("tif", "LA"),
            ("jpg", "RGB"),
            ("webp", "RGBA"),
            ("gif", "P"),
            ("bmp", "L"),
        )
    ]
    for number in range(count):
        content = bytearray(sources[number % len(sources)])
        for _ in range(draw.randint(1, 4)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        damaged = bytes(content[: draw.randint(1, len(content))] if draw.random() < 0.3 else content)
        with contextlib.suppress(ConfigError), warnings.catch_warnings(action="ignore"):  # as decode_pictures does
            decode(EncodedImage("it", damaged), Look(3, False, (0, 0, 0)), 16)
