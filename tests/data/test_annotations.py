"""What annotations state twice is compared: sizes with files, ids with each other, label files with images."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files_with_boxes import BOX, HIGH, ROW, WIDE, save, voc, write_carla, write_coco, write_yolo
from PIL import Image

from raysim.config.error_text import show
from raysim.data.detection.box_rows import BoxKeys
from raysim.data.detection.carla import carla
from raysim.data.detection.coco import coco
from raysim.data.detection.proportions import is_resized
from raysim.data.detection.yolo import yolo
from raysim.system.capacity import Capacity
from raysim.system.errors import ConfigError

Change = Callable[[dict[str, Any]], object]


def write_json(root: Path, content: dict[str, Any], part: str = "train2017") -> None:
    (root / "town" / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))


def image(**changed: Any) -> Change:
    return lambda content: content["images"][1].update(changed)


def annotation(**changed: Any) -> Change:
    return lambda content: content["annotations"][0].update(changed)


def category(**changed: Any) -> Change:
    return lambda content: content["categories"][1].update(changed)


# --- Sizes: |wH - hW| < W + H, derived in is_resized


@pytest.mark.parametrize(
    ("named", "file", "explained"),
    [
        ((640, 320), (64, 32), True),
        ((64, 32), (640, 320), True),
        ((640, 427), (64, 43), True),  # 42.7 rounds to 43: |64 * 427 - 43 * 640| = 192 < 1067
        ((640, 427), (64, 42), True),  # and 42 if it is cut off: |64 * 427 - 42 * 640| = 448
        ((640, 427), (64, 45), False),  # 45 is no rounding of 42.7: |64 * 427 - 45 * 640| = 1472
        ((32, 64), (64, 32), False),  # turned
        ((99, 100), (100, 99), False),  # turned and almost square: |100 * 100 - 99 * 99| = 199 = 99 + 100, not below
        ((640, 480), (640, 400), False),
    ],
)
def test_a_resize_that_keeps_proportions_is_told_from_another_picture(
    named: tuple[int, int], file: tuple[int, int], explained: bool
) -> None:
    assert is_resized(named, file) is explained
    assert is_resized(file, named) is explained


def test_any_rounding_of_any_resize_is_explained() -> None:
    """Down, up or to the nearest, each side by itself."""
    generator = np.random.default_rng(0)
    for _ in range(500):
        width, height = (int(side) for side in generator.integers(1, 3000, 2))
        factor = float(generator.uniform(0.01, 3))
        rounds = [math.floor, math.ceil, round]
        small = [max(1, rounds[int(generator.integers(3))](side * factor)) for side in (width, height)]
        if min(side * factor for side in (width, height)) >= 1:  # a side of less than a pixel becomes one pixel
            assert is_resized((width, height), (small[0], small[1]))


def test_coco_reads_resized_pictures(tmp_path: Path) -> None:
    """The file has 40 x 20 pixels, and its annotations are of 400 x 200: all numbers times 10."""
    write_coco(tmp_path, lambda content: content["images"][0].update(width=10 * WIDE, height=10 * HIGH))
    content = json.loads((tmp_path / "town" / "annotations" / "instances_train2017.json").read_text())
    content["annotations"] = [{"image_id": 10, "category_id": 7, "bbox": [100, 50, 100, 100]}]
    write_json(tmp_path, content)
    assert coco(tmp_path, False, path="town", size=8).train.y[0, 0].tolist() == [1, *ROW]


@pytest.mark.parametrize("upright", [True, False])
def test_boxes_belong_to_the_pixels_whose_size_their_annotations_name(upright: bool, tmp_path: Path) -> None:
    """A blue picture, 64 x 96, with a red box from (8, 16) to (40, 56), stored on its side with orientation 6.

    Orientation 6 is shown turned by 90 degrees clockwise. So a point (x, y) of the picture shown is at (y, 63 - x) in
    the stored picture of 96 x 64: the box is from (16, 24) to (56, 56) there. At a size of 96 both have sides of whole
    pixels.
    """
    pixels = np.zeros((96, 64, 3), np.uint8)
    pixels[..., 2] = 255
    pixels[16:56, 8:40] = (255, 0, 0)
    stored = Image.fromarray(pixels).transpose(Image.Transpose.ROTATE_90)
    assert stored.size == (96, 64)
    exif = Image.Exif()
    exif[0x0112] = 6
    write_coco(tmp_path)
    for part in ("train2017", "val2017"):
        stored.save(tmp_path / "town" / part / "0.png", exif=exif)
        write_json(
            tmp_path,
            {
                "images": [
                    {"id": 1, "file_name": "0.png", "width": 64 if upright else 96, "height": 96 if upright else 64}
                ],
                "annotations": [
                    {"image_id": 1, "category_id": 1, "bbox": [8, 16, 32, 40] if upright else [16, 24, 40, 32]}
                ],
                "categories": [{"id": 1, "name": "red"}],
            },
            part,
        )
    data = coco(tmp_path, False, path="town", size=96)
    _, x, y, w, h = (float(value) * 96 for value in data.train.y[0, 0])
    left, right, top, bottom = (round(edge) for edge in (x - w / 2, x + w / 2, y - h / 2, y + h / 2))
    red = data.train.x[0, 0] > 127
    assert red[top:bottom, left:right].mean() > 0.95
    assert red.sum() == pytest.approx((bottom - top) * (right - left), rel=0.1)
    said = [note for note in data.notes if "not turned" in note]
    assert len(said) == (0 if upright else 1)


def test_another_picture_of_the_same_name_is_refused(tmp_path: Path) -> None:
    write_coco(tmp_path, image(width=HIGH, height=WIDE))
    with pytest.raises(ConfigError, match=r"images\[1\]: found a size of 20 x 40, allowed: .*1.png, 40 x 20$"):
        coco(tmp_path, False, path="town", size=8)


# --- COCO's ids, names and numbers

DEEP: list[Any] = []
for _ in range(400):
    DEEP = [DEEP]

WRONG: list[tuple[Change, str]] = [
    (image(id=[1]), r"dataset.train: .*images\[1\]: found the id \[1\], allowed: a whole number or a text"),
    (image(id=True), r"images\[1\]: found the id true, allowed: a whole number or a text"),
    (image(id=1.0), r"images\[1\]: found the id 1.0, allowed: a whole number or a text"),
    (image(id=10), r"images\[1\]: found the id 10 again, allowed: one entry with it, as images\[0\]"),
    (image(id=DEEP), r"images\[1\]: found the id \[\[.*allowed: a whole number"),
    (image(file_name="./0.png"), r"images\[1\]: found the file_name '0.png' again, .* as images\[0\]"),
    (image(file_name=3), r"images\[1\]: found the file_name 3, allowed: a text that is not empty"),
    (image(file_name=" "), r"images\[1\]: found the file_name ' ', allowed: a text that is not empty"),
    (image(file_name="x" * 400 + ".png"), r"there is no image .*x.png, which .*images\[1\] names"),
    (image(file_name="\ud800.png"), r"there is no image .*\\ud800.png, which .*images\[1\] names"),
    (image(width=math.inf), r"images\[1\]: found a size of .inf x 20, allowed: numbers of pixels, whole and above 0"),
    (image(width=math.nan), r"images\[1\]: found a size of .nan x 20"),
    (image(width=True), r"images\[1\]: found a size of true x 20"),
    (image(width="40"), r"images\[1\]: found a size of '40' x 20"),
    (image(width=40.5), r"images\[1\]: found a size of 40.5 x 20"),
    (image(width=10**400), r"images\[1\]: found a size of a whole number of 1329 bits x 20"),
    (category(id="abc", name=""), r"categories\[1\]: found the name '', allowed: a text"),
    (category(id={}), r"categories\[1\]: found the id \{\}, allowed: a whole number or a text"),
    (category(id=7), r"categories\[1\]: found the id 7 again, allowed: one entry with it, as categories\[0\]"),
    (category(name="car"), r"categories\[1\]: found the name 'car' again, allowed: one entry with it"),
    (category(name=7), r"categories\[1\]: found the name 7, allowed: a text"),
    (annotation(image_id=[1]), r"annotations\[0\]: found the image_id \[1\], allowed: a whole number or a text"),
    (annotation(category_id={}), r"annotations\[0\]: found the category_id \{\}, allowed: a whole number or a text"),
    (annotation(category_id=True), r"annotations\[0\]: found the category_id true, allowed: a whole number"),
    (annotation(image_id="10"), r"annotations\[0\]: found the image_id '10', allowed: the id of one of its images"),
    (annotation(bbox=[1, 2, math.nan, 3]), r"annotations\[0\]: found the bbox \[1, 2, .nan, 3\], allowed: \[left"),
    (annotation(bbox=[1, 2, True, 3]), r"annotations\[0\]: found the bbox \[1, 2, true, 3\]"),
    (annotation(bbox=[1, 2, 10**400, 3]), r"annotations\[0\]: found the bbox \[1, 2, a whole number of"),
    (annotation(bbox=DEEP), r"annotations\[0\]: found the bbox \[\["),
    (annotation(iscrowd="0"), r"annotations\[0\]: found the iscrowd '0', allowed: 0 or 1"),
    (annotation(id=1.5), r"annotations\[0\]: found the id 1.5, allowed: a whole number or a text"),
    (lambda content: [one.update(id=5) for one in content["annotations"]], r"annotations\[1\]: found the id 5 again"),
    (lambda content: content["images"].__setitem__(0, "x"), r"images\[0\]: found 'x', allowed: an entry with id, file"),
    (annotation(bbox=None), r"annotations\[0\]: found no bbox, allowed: a bbox, or polygons as segmentation"),
    (annotation(bbox=None, segmentation=[[1, 2, 3, 4]]), r"found no bbox and the segmentation \[\[1, 2, 3, 4\]\], all"),
    (annotation(bbox=None, segmentation={"counts": "a", "size": [20, 40]}), r"as a mask \(RLE\), allowed: a bbox or"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG)
def test_a_wrong_value_in_a_coco_file_is_named(change: Change, words: str, tmp_path: Path) -> None:
    write_coco(tmp_path, change)
    with pytest.raises(ConfigError, match=words) as caught:
        coco(tmp_path, False, path="town", size=8)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"images": ' + "9" * 5000 + "}", "\x00", ""])
def test_what_is_no_json_of_cocos_has_one_line(text: str, tmp_path: Path) -> None:
    write_coco(tmp_path)
    (tmp_path / "town" / "annotations" / "instances_val2017.json").write_text(text)
    with pytest.raises(ConfigError, match=r"dataset.test: .*val2017.json is no JSON"):
        coco(tmp_path, False, path="town", size=8)


def test_ids_may_be_texts_and_are_ordered_by_value(tmp_path: Path) -> None:
    """'9' comes before '10', and a name after both."""

    def rename(content: dict[str, Any]) -> None:
        content["categories"] = [
            {"id": key, "name": name} for key, name in (("x", "last"), ("10", "second"), ("9", "first"))
        ]
        content["annotations"] = [{"image_id": 10, "category_id": "9", "bbox": [0, 0, 9, 9]}]

    write_coco(tmp_path, rename)
    content = json.loads((tmp_path / "town" / "annotations" / "instances_train2017.json").read_text())
    write_json(tmp_path, content, "val2017")
    content["images"] = content["images"][:1]
    write_json(tmp_path, content, "val2017")
    assert coco(tmp_path, False, path="town", size=8).names == ("first", "second", "last")


def test_many_categories_are_looked_up_at_once(tmp_path: Path) -> None:
    """Comparing each of 50,000 names with all others takes minutes. A message names few of them."""
    many = [{"id": number, "name": f"class {number}"} for number in range(50_000)]
    boxes = [{"image_id": 10, "category_id": number, "bbox": [0, 0, 9, 9]} for number in range(0, 50_000, 1000)]

    def grow(content: dict[str, Any]) -> None:
        content.update(categories=many, annotations=boxes)

    write_coco(tmp_path, grow)
    content = {"images": [{"id": 1, "file_name": "0.png", "width": WIDE, "height": HIGH}], "categories": many}
    write_json(
        tmp_path, content | {"annotations": [{"image_id": 1, "category_id": 49_999, "bbox": [0, 0, 9, 9]}]}, "val2017"
    )
    data = coco(tmp_path, False, path="town", size=8)
    assert data.names is not None
    assert data.names[49_999] == "class 49999"
    assert data.train.y[0, :50, 0].tolist() == [*range(0, 50_000, 1000)]
    assert data.test.y[0, 0, 0] == 49_999
    with pytest.raises(ConfigError, match=r"found the class 'clas', allowed: class 0, class 1, .*, \.\.\.$") as caught:
        coco(tmp_path, False, path="town", size=8, classes=("clas",))
    assert len(str(caught.value)) < 1000


def test_a_file_is_weighed_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a memory of 4 KiB holds 1,200 characters, and not 400 lists in them."""
    write_coco(tmp_path)
    monkeypatch.setattr("raysim.system.capacity.this_machine", lambda: Capacity(1, 0, 4000))
    file = tmp_path / "town" / "annotations" / "instances_train2017.json"
    for text in ("[" + "[]," * 100, " " * 5000):
        file.write_text(text)
        with pytest.raises(
            ConfigError, match=r"dataset.train: found .*2017.json, which takes .* GiB, allowed: what fits"
        ):
            coco(tmp_path, False, path="town", size=8)


def test_targets_are_weighed_before_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 images with 1000 rows of 5 float32 each take 60 kB."""
    write_coco(tmp_path)
    monkeypatch.setattr("raysim.system.capacity.this_machine", lambda: Capacity(1, 0, 100_000))
    with pytest.raises(ConfigError, match=r"dataset.boxes: found 1000 for 3 images, which takes"):
        coco(tmp_path, False, path="town", size=8, boxes=1000)


def test_values_nested_deep_are_shown() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert show(nested).startswith("[[[")


# --- Boxes outside their image


def test_a_box_outside_its_image_is_refused_or_clipped(tmp_path: Path) -> None:
    """x from 30 to 50 of 40: the part in the image is x from 30 to 40, so its center is 35/40 and its width 10/40."""
    write_coco(tmp_path, annotation(bbox=[30, 5, 20, 10]))
    with pytest.raises(ConfigError, match=r"allowed: boxes in the image, .*; boxes: \{outside: clip\} cuts boxes to"):
        coco(tmp_path, False, path="town", size=8)
    data = coco(tmp_path, False, path="town", size=8, boxes=BoxKeys(most=3, outside="clip"))
    assert data.train.y.shape == (2, 3, 5)
    assert data.train.y[0, 0].tolist() == [1, 35 / 40, 0.5, 10 / 40, 0.5]
    assert "boxes clipped to their image: 1" in data.notes


@pytest.mark.parametrize(
    ("line", "row", "note"),
    [
        ("1 0.95 0.5 0.2 0.5", [1, 0.925, 0.5, 0.15, 0.5], "boxes clipped to their image: 1"),
        ("1 1.5 0.5 0.2 0.5", None, "boxes left out: 1 outside their image"),
        ("1 0.5 0.5 0 0.5", None, "boxes left out: 1 without area"),
        ("1 1.00004 0.5 0.00008 0.5", None, "boxes left out: 1 outside their image"),  # within the tolerance, EDGE
        ("1 0.5 0.5 1.0001 1", [1, 0.5, 0.5, 1, 1], None),
        ("1 0.9 0.1 1.1 0.1 1.1 0.3", [1, 0.95, 0.2, 0.1, 0.2], "boxes clipped to their image: 1"),
    ],
)
def test_clipped_boxes_and_those_left_out_are_counted(
    line: str, row: list[float] | None, note: str | None, tmp_path: Path
) -> None:
    write_yolo(tmp_path, line)
    data = yolo(tmp_path, False, path="town", size=8, boxes=BoxKeys(outside="clip"))
    assert data.train.y[0, 1].tolist() == pytest.approx(row or [-1, 0, 0, 0, 0])
    assert [one for one in data.notes if "clipped" in one or "left out" in one] == ([note] if note else [])


def test_a_negative_box_is_no_box_with_clip_either(tmp_path: Path) -> None:
    write_yolo(tmp_path, "1 0.5 0.5 -0.1 0.1")
    with pytest.raises(ConfigError, match=r"line 3: found a box from .*, allowed: a right edge beyond"):
        yolo(tmp_path, False, path="town", size=8, boxes=BoxKeys(outside="clip"))


def test_carlas_boxes_are_clipped_too(tmp_path: Path) -> None:
    write_carla(tmp_path, voc(("vehicle", 30, 5, 50, 15)))
    data = carla(tmp_path, False, path="drive", size=8, boxes=BoxKeys(outside="clip"))
    assert data.train.y[5, 0].tolist() == [0, 35 / 40, 0.5, 10 / 40, 0.5]


# --- Polygons


def test_cocos_polygons_have_boxes_and_a_bbox_wins(tmp_path: Path) -> None:
    """Two parts of one object: x from 4 to 20 of 40, y from 2 to 12 of 20."""
    polygons = [[4, 2, 8, 2, 8, 6], [10, 4, 20, 8, 12, 12, 10, 9]]

    def change(content: dict[str, Any]) -> None:
        left, top, right, bottom = BOX
        content["annotations"] = [
            {"image_id": 10, "category_id": 7, "segmentation": polygons},
            {
                "image_id": 10,
                "category_id": 7,
                "segmentation": polygons,
                "bbox": [left, top, right - left, bottom - top],
            },
        ]

    write_coco(tmp_path, change)
    data = coco(tmp_path, False, path="town", size=8, boxes=2)
    assert data.train.y[0].tolist() == [pytest.approx([1, 12 / 40, 7 / 20, 16 / 40, 10 / 20]), [1, *ROW]]
    assert "boxes around polygons: 1" in data.notes


def test_yolos_polygons_and_boxes_mix_line_by_line(tmp_path: Path) -> None:
    write_yolo(tmp_path, "1 0.2 0.1 0.6 0.3 0.4 0.7\n0 0.5 0.5 0.5 0.5")
    data = yolo(tmp_path, False, path="town", size=8, boxes=3)
    assert data.train.y[0, 1:].tolist() == [pytest.approx([1, 0.4, 0.4, 0.4, 0.6]), [0, 0.5, 0.5, 0.5, 0.5]]
    assert "boxes around polygons: 1" in data.notes


NO_LINES = ("1 .1 .1 .2 .2 .9", "1 .1 .1 .2 .2 .3 .3 .4", "1 .1 .1", "1_0 .5 .5 .1 .1", "\u0661 .5 .5 .1 .1",
            "0.5 .5 .5 .1 .1", "inf .5 .5 .1 .1")  # fmt: skip


@pytest.mark.parametrize("line", NO_LINES)
def test_a_line_of_another_length_or_number_is_refused(line: str, tmp_path: Path) -> None:
    """With a confidence, with an odd number of coordinates, with half a box, with numbers that only Python reads."""
    write_yolo(tmp_path, line)
    with pytest.raises(ConfigError, match=r"line 3: found .*, allowed: class, x, y, width and height, .* 3 points"):
        yolo(tmp_path, False, path="town", size=8)


# --- YOLO's files


def test_class_numbers_and_files_as_other_tools_write_them(tmp_path: Path) -> None:
    """pandas writes 1.0, and Windows' editors a byte order mark."""
    write_yolo(tmp_path)
    labels = tmp_path / "town" / "labels" / "train" / "0.txt"
    labels.write_text("\ufeff1.0 0.375 0.5 0.25 0.5\n", encoding="utf-8")
    assert yolo(tmp_path, False, path="town", size=8).train.y[0, 0].tolist() == [1, *ROW]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("names: {0: yes, 1: no}", ("yes", "no")),
        ("names: [yes, no]", ("yes", "no")),
        ("names:\n  0: on\n  1: true", ("on", "true")),
        ("names: [1_000, 2024-01-01]", ("1_000", "2024-01-01")),
        ("names: ['007', 0x10]", ("007", "0x10")),
        ("nc: 2\nnames: [a, b]", ("a", "b")),
    ],
)
def test_names_are_as_they_are_written(text: str, names: tuple[str, ...], tmp_path: Path) -> None:
    write_yolo(tmp_path, names=text)
    assert yolo(tmp_path, False, path="town", size=8).names == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("names: {0: a, 2: b}", r"found names \{0: 'a', 2: 'b'\}, allowed: a list of names, or a mapping from 0, 1"),
        ("names: {0: a, 0: b, 1: c}", r"data.yaml:1: the key '0' is given twice"),
        ("names: [a, '']", r"found names \['a', ''\], allowed: a list"),
        ("names: [a, [b]]", r"found names \['a', \['b'\]\], allowed: a list"),
        ("names: [a, a]", r"data.yaml: found the class 'a' twice, allowed: each name once"),
        ("names: [a, b]\nnc: 3", r"data.yaml: found nc '3' and 2 names, allowed: the number of names"),
        ("names: [a, b]\nkpt_shape: [17, 3]", r"data.yaml: found kpt_shape, .*allowed: boxes and polygons"),
        ("- a", r"found names null, allowed"),
        ("names: [a", r"data.yaml:1: broken YAML"),
        ("[" * 3000, r"data.yaml:1: nested more than 50 deep"),
        ("{? [a] : b}", r"data.yaml:1: found a list or a block as a key"),
    ],
)
def test_names_that_are_no_names_are_refused(text: str, words: str, tmp_path: Path) -> None:
    write_yolo(tmp_path, names=text)
    with pytest.raises(ConfigError, match=words):
        yolo(tmp_path, False, path="town", size=8)


def test_classes_are_chosen_by_the_names_of_the_numbers_in_the_files(tmp_path: Path) -> None:
    """data.yaml says that 1 is a car: `classes: [car, person]` puts it first, and [car] leaves persons out."""
    write_yolo(tmp_path)
    turned = yolo(tmp_path, False, path="town", size=8, classes=("car", "person"))
    assert turned.train.y[0, :2].tolist() == [[1, 0.5, 0.5, 1, 1], [0, *ROW]]
    cars = yolo(tmp_path, False, path="town", size=8, classes=("car",))
    assert cars.train.y[0, :2].tolist() == [[0, *ROW], [-1, 0, 0, 0, 0]]
    assert "boxes left out: 2 of other classes" in cars.notes  # one for training and one for testing
    with pytest.raises(ConfigError, match=r"dataset.classes: found the class 'cars', allowed: person, car; did you"):
        yolo(tmp_path, False, path="town", size=8, classes=("cars",))


def test_images_in_folders_below_have_labels_there(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    town = tmp_path / "town"
    save(town / "images" / "train" / "sub" / "0.jpg", 9)
    (town / "labels" / "train" / "sub").mkdir()
    (town / "labels" / "train" / "sub" / "0.txt").write_text("1 0.375 0.5 0.25 0.5")
    data = yolo(tmp_path, False, path="town", size=8)
    of_image = dict(zip(data.train.x[:, 0, 0, 0].tolist(), data.train.y[:, 0].tolist(), strict=True))
    assert of_image[9] == [1, *ROW]
    assert len(of_image) == 3


def test_label_files_without_an_image_are_refused(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    labels = tmp_path / "town" / "labels" / "train"
    (labels / "classes.txt").write_text("person\ncar\n")  # labelImg's
    assert len(yolo(tmp_path, False, path="town", size=8).train) == 2
    for number in range(5, 9):
        (labels / f"{number}.txt").write_text("")
    with pytest.raises(
        ConfigError, match=r"found 4 files of boxes without an image in .*/5.txt, .*7.txt, \.\.\.\), all"
    ):
        yolo(tmp_path, False, path="town", size=8)


def test_names_that_differ_in_case_are_refused(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    town = tmp_path / "town"
    (town / "labels" / "val" / "0.txt").rename(town / "labels" / "val" / "IMG_9.txt")
    (town / "images" / "val" / "0.png").rename(town / "images" / "val" / "img_9.png")
    with pytest.raises(ConfigError, match=r"1 files of .*; IMG_9.txt and img_9.png differ in upper and lower case"):
        yolo(tmp_path, False, path="town", size=8)


def test_two_images_with_one_label_file_are_refused(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    save(tmp_path / "town" / "images" / "train" / "0.bmp", 3)
    with pytest.raises(ConfigError, match=r"0.txt has boxes of 0.bmp and 0.png, allowed: one image"):
        yolo(tmp_path, False, path="town", size=8)


def test_a_label_file_of_any_size_is_not_read(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    with (tmp_path / "town" / "labels" / "train" / "1.txt").open("wb") as file:
        file.truncate(2**40)  # a hole
    with pytest.raises(ConfigError, match=r"1.txt: found 1,099,511,627,776 bytes, allowed: at most 16,777,216"):
        yolo(tmp_path, False, path="town", size=8)


# --- CARLA's files


def test_a_file_of_boxes_without_a_frame_is_refused(tmp_path: Path) -> None:
    write_carla(tmp_path)
    (tmp_path / "drive" / "a" / "000009.xml").write_text(voc())
    with pytest.raises(ConfigError, match=r"found 1 files of boxes without an image in .*000009.xml"):
        carla(tmp_path, False, path="drive", size=8)


@pytest.mark.parametrize(
    ("width", "words"),
    [
        ("0", "found a size of 0 x 20, allowed: numbers of pixels above 0"),
        ("inf", "found a size of inf x 20"),
        ("4_0", "found size/width '4_0', allowed: a number of pixels"),
        ("80", r"000001.xml: found a size of 80 x 20, allowed: the proportions of .*000001.png, 40 x 20"),
    ],
)
def test_a_frames_size_is_compared_with_its_file(width: str, words: str, tmp_path: Path) -> None:
    write_carla(tmp_path, voc(("vehicle", *BOX)).replace(f"<width>{WIDE}<", f"<width>{width}<"))
    with pytest.raises(ConfigError, match=words):
        carla(tmp_path, False, path="drive", size=8)


def test_an_object_without_a_name_is_refused(tmp_path: Path) -> None:
    write_carla(tmp_path, voc(("", *BOX)))
    with pytest.raises(ConfigError, match=r"000001.xml, object 1: found no name, allowed: the name of a class"):
        carla(tmp_path, False, path="drive", size=8)


# --- Notes


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    """Files by hand: a crowd, a box without area, an image without boxes, and an image that the file does not name."""
    write_coco(
        tmp_path,
        lambda content: content["annotations"].append({"image_id": 10, "category_id": 3, "bbox": [1, 1, 0, 5]}),
    )
    save(tmp_path / "town" / "train2017" / "7.png", 1)
    data = coco(tmp_path, False, path="town", size=8, classes=("car",))
    assert data.notes == (
        "used 3 of 4 files; left out: 1 that instances_train2017.json does not name",
        "class 0: car",
        "boxes left out: 2 of crowds, 3 of other categories",
        "dataset.train: 1 of 2 images have no boxes",
    )


def test_images_without_a_label_file_are_counted(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    (tmp_path / "town" / "labels" / "val" / "1.txt").write_text("\n")
    assert yolo(tmp_path, False, path="town", size=8).notes == (
        "classes 0 to 1: person, car",
        "dataset.train: 1 of 2 images have no boxes, 1 of these no file of boxes",
        "dataset.test: 1 of 2 images have no boxes",
    )


def test_boxes_in_fractions_are_no_pixels(tmp_path: Path) -> None:
    """Read as pixels, they would all be in the first one."""

    def divide(content: dict[str, Any]) -> None:
        for one in content["annotations"]:
            one["bbox"] = [0.25, 0.5, 0.5, 0.5]

    write_coco(tmp_path, divide)
    with pytest.raises(
        ConfigError, match=r"dataset\.train: .*instances_train2017\.json: found boxes up to 1 only, allow"
    ):
        coco(tmp_path, False, path="town", size=8)
