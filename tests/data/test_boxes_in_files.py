"""Images with boxes in files: COCO's, YOLO's and CARLA's layouts, read and refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files_with_boxes import BOX, ROW, voc, write_carla, write_coco, write_yolo

from raysim.data.dataset import Dataset, MissingData
from raysim.data.detection.carla import carla
from raysim.data.detection.coco import coco
from raysim.data.detection.yolo import yolo
from raysim.data.loading import check_dataset
from raysim.objectives.boxes import check_boxes
from raysim.system.errors import ConfigError


def read(dataset: Dataset, classes: int) -> Dataset:
    assert check_boxes(dataset.train.y, classes) is None
    return check_dataset(dataset, "boxes")


def test_coco(tmp_path: Path) -> None:
    """Classes in the order of the categories' ids: person (3), car (7). The crowd is left out."""
    write_coco(tmp_path)
    data = read(coco(tmp_path, False, path="town", size=8, boxes=3), 2)
    assert data.names == ("person", "car")
    assert data.train.x[:, :, 0, 0].tolist() == [[50] * 3, [51] * 3]
    assert data.train.y[0].tolist() == [[1, *ROW], [0, 0.5, 0.5, 1, 1], [-1, 0, 0, 0, 0]]
    assert (data.train.y[1, :, 0] == -1).all()
    cars = read(coco(tmp_path, False, path="town", size=8, boxes=3, classes=("car",)), 1)
    assert cars.train.y[0, :2].tolist() == [[0, *ROW], [-1, 0, 0, 0, 0]]


def test_coco_has_boxes_of_height_0(tmp_path: Path) -> None:
    """The published train2017 has two, which are left out."""
    write_coco(tmp_path, annotation(bbox=[3, 5, 4, 0]))
    data = read(coco(tmp_path, False, path="town", size=8, boxes=3), 2)
    assert data.train.y[0].tolist() == [[1, *ROW], [-1, 0, 0, 0, 0], [-1, 0, 0, 0, 0]]


def test_yolo(tmp_path: Path) -> None:
    write_yolo(tmp_path)
    data = read(yolo(tmp_path, False, path="town", size=8, boxes=2), 2)
    assert data.names == ("person", "car")
    assert data.train.y[0].tolist() == [[0, 0.5, 0.5, 1, 1], [1, *ROW]]
    assert (data.train.y[1, :, 0] == -1).all()
    write_yolo(tmp_path, names="names: {0: walker, 1: vehicle}")
    assert yolo(tmp_path, False, path="town", size=8).names == ("walker", "vehicle")


def test_carla(tmp_path: Path) -> None:
    """The last two of five frames are for testing; clients are the vehicles."""
    write_carla(tmp_path)
    data = read(carla(tmp_path, False, path="drive", size=8, boxes=2, test_fraction=0.4), 2)
    assert data.names == ("vehicle", "walker")
    assert data.train.clients is not None
    assert data.train.clients.tolist() == ["a"] * 3 + ["b"] * 3
    assert data.train.columns["frame"].tolist() == [0, 1, 2] * 2
    assert data.test.columns["vehicle"].tolist() == [0, 0, 1, 1]
    assert data.test.x[:, 0, 0, 0].tolist() == [30, 40] * 2
    assert data.train.y[0].tolist() == pytest.approx(np.array([[0, *ROW], [1, 0.05, 0.225, 0.1, 0.45]]))
    assert (data.test.y[0, :, 0] == -1).all()


@pytest.mark.parametrize(("fraction", "tests"), [(0.9, 4), (0.01, 1)])
def test_carla_leaves_a_frame_for_training_and_one_for_testing(tmp_path: Path, fraction: float, tests: int) -> None:
    """Of five frames of a vehicle: 0.9 of them would be all five by rounding."""
    write_carla(tmp_path)
    data = carla(tmp_path, False, path="drive", size=8, boxes=2, test_fraction=fraction)
    assert (len(data.train), len(data.test)) == (2 * (5 - tests), 2 * tests)


def annotation(**changed: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["annotations"][1].update(changed)


WRONG_COCO: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (annotation(bbox=[30, 5, 20, 5]), r"2017.json, annotations\[1\]: found a box .* to \(50, 10\), .*\(40, 20\)"),
    (annotation(bbox=[3, 5, -1, 5]), r"annotations\[1\]: found a box from \(3, 5\) to \(2, 10\), allowed: a right"),
    (annotation(category_id=4), r"annotations\[1\]: found the category_id 4, allowed: 7, 3"),
    (annotation(image_id=99), r"annotations\[1\]: found the image_id 99, allowed: the id of one"),
    (annotation(bbox=[1, 2, 3]), r"annotations\[1\]: found the bbox \[1, 2, 3\], allowed: \[left, top, width"),
    (lambda content: content.pop("categories"), "train2017.json has no list categories, allowed: COCO's images"),
    (lambda content: content["images"][0].pop("width"), r"images\[0\]: found no width, allowed: id, file_name, wid"),
    (lambda content: content["images"][0].update(height=0), r"images\[0\]: found a size of 40 x 0, allowed: numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), WRONG_COCO)
def test_a_wrong_coco_file_is_named(change: Callable[[dict[str, Any]], object], words: str, tmp_path: Path) -> None:
    write_coco(tmp_path, change)
    with pytest.raises(ConfigError, match=words) as caught:
        coco(tmp_path, False, path="town", size=8)
    assert "\n" not in str(caught.value)


def test_what_is_missing_or_too_much_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"dataset.path: there is no folder .*town; a relative path starts at"):
        coco(tmp_path, False, path="town")
    write_coco(tmp_path)
    with pytest.raises(
        ConfigError, match=r"dataset.classes: found the class 'cars', allowed: person, car.*did you mean"
    ):
        coco(tmp_path, False, path="town", classes=("cars",))
    with pytest.raises(ConfigError, match=r"found 2 boxes of one image, allowed: at most 1 \(dataset.boxes\)"):
        coco(tmp_path, False, path="town", boxes=1)
    (tmp_path / "town" / "train2017" / "1.png").unlink()
    with pytest.raises(MissingData, match=r"there is no image .*1.png, which .*train2017.json, images\[1\] names"):
        coco(tmp_path, False, path="town")
    (tmp_path / "town" / "annotations" / "instances_val2017.json").write_text("{")
    with pytest.raises(ConfigError, match=r"dataset.test: .*val2017.json is no JSON"):
        coco(tmp_path, False, path="town")
    (tmp_path / "town" / "annotations" / "instances_val2017.json").unlink()
    with pytest.raises(MissingData, match=r"dataset.test: there is no file .*val2017.json"):
        coco(tmp_path, False, path="town")


WRONG_YOLO = [
    ("2 0.5 0.5 0.1 0.1", r"0.txt, line 3: found the class 2, allowed: 0 to 1"),
    ("0 0.5 0.5 0.1", r"0.txt, line 3: found '0 0.5 0.5 0.1', allowed: class, x, y, width and height"),
    ("0 0.5 x 0.1 0.1", r"line 3: found '0 0.5 x 0.1 0.1', allowed: class"),
    ("0 0.98 0.5 0.1 0.1", r"line 3: found a box from \(0.93, 0.45\) to \(1.03, 0.55\), allowed: boxes in the image"),
    ("0 0.5 0.5 0 0.1", r"line 3: found a box from \(0.5, 0.45\) to \(0.5, 0.55\), allowed: a right edge beyond"),
    ("0 nan 0.5 0.1 0.1", r"line 3: found a box from \(nan, "),
]


@pytest.mark.parametrize(("line", "words"), WRONG_YOLO)
def test_a_wrong_yolo_line_is_named(line: str, words: str, tmp_path: Path) -> None:
    write_yolo(tmp_path, line)
    with pytest.raises(ConfigError, match=words):
        yolo(tmp_path, False, path="town", size=8)


def test_names_of_yolos_classes_are_needed(tmp_path: Path) -> None:
    write_yolo(tmp_path, names="names: {1: person}")
    with pytest.raises(ConfigError, match=r"data.yaml: found names \{1: 'person'\}, allowed: a list of names, or"):
        yolo(tmp_path, False, path="town")
    (tmp_path / "town" / "data.yaml").unlink()
    with pytest.raises(ConfigError, match=r"dataset.classes: found null and no file .*data.yaml, allowed: one of both"):
        yolo(tmp_path, False, path="town")
    assert yolo(tmp_path, False, path="town", classes=("a", "b")).names == ("a", "b")


WRONG_CARLA = [
    (voc(("vehicle", 10, 5, 41, 9)), r"000001.xml, object 1: found a box from \(10, 5\) to \(41, 9\), allowed: boxes"),
    (voc(("vehicle", *BOX), ("walker", 4, 9, 4, 12)), r"000001.xml, object 2: found a box from .*, allowed: a right"),
    (voc(("bus", *BOX)), r"object 1: found the class 'bus', allowed: vehicle, walker"),
    (voc(("vehicle", "x", 5, 41, 9)), r"000001.xml, object 1: found bndbox/xmin 'x', allowed: a number of pixels"),
    ("<annotation>", r"000001.xml: is no XML"),
    ("<annotation></annotation>", r"000001.xml: found size/width 'nothing', allowed: a number"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), WRONG_CARLA)
def test_a_wrong_carla_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    write_carla(tmp_path, text)
    with pytest.raises(ConfigError, match=words):
        carla(tmp_path, False, path="drive", size=8, classes=("vehicle", "walker"))
