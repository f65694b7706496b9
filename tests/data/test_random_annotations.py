"""Random changes of sound annotations: each gives a dataset or one ConfigError, and no other exception."""

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from files_with_boxes import voc, write_carla, write_coco, write_yolo

from raysim.data.dataset import Dataset
from raysim.data.detection.box_rows import BoxKeys
from raysim.data.detection.carla import carla
from raysim.data.detection.coco import coco
from raysim.data.detection.yolo import yolo
from raysim.data.loading import check_dataset
from raysim.objectives.boxes import check_boxes
from raysim.system.errors import ConfigError

CASES = [200, pytest.param(2_000, marks=pytest.mark.soak)]

NESTED: list[Any] = []
for _ in range(300):
    NESTED = [NESTED]

VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        10,
        7,
        0.5,
        1e308,
        -1e308,
        5e-324,
        10**30,
        -(10**400),
        math.nan,
        math.inf,
        -math.inf,
    ),
    *("", " ", "10", "x" * 5000, "\x00", "\ud800", "../0.png", "/", ".", "0.png", "car", "1e400"),
    *([], {}, [[]], [1, 2, 3, 4], [[1, 2, 3, 4, 5, 6]], [{}], {"counts": "a", "size": [1, 1]}, NESTED),
]
CHARACTERS = "0123456789.-+eE_,:;[]{}()<>/\"'&*!|?%@# \n\t\x00\ufeff\u0661\u2028naNinfyo~"


def places(content: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each value."""
    if place:
        yield place
    for key in content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ():
        yield from places(content[key], (*place, key))


def change_value(content: Any, draw: random.Random) -> None:
    """Replace, drop or copy a value in JSON."""
    *above, last = draw.choice([*places(content)])
    around = content
    for key in above:
        around = around[key]
    kind = draw.randrange(4)
    if kind == 0:
        del around[last]
    elif kind == 1 and isinstance(around, list):
        around.append(around[last])
    else:
        around[last] = draw.choice(VALUES)


def change_text(text: str, draw: random.Random) -> str:
    """Put characters in the place of others."""
    start = draw.randrange(len(text) + 1)
    some = "".join(draw.choices(CHARACTERS, k=draw.randrange(4)))
    return text[:start] + some + text[start + draw.randrange(4) :]


def read(function: Any, root: Path, **keys: Any) -> bool:
    """Return whether there is a dataset, which is then sound, and not an error of one line."""
    problem = ""
    try:
        dataset = check_dataset(function(root, False, size=8, **keys), "random")
    except ConfigError as error:
        problem = str(error)
    if problem:
        assert "\n" not in problem
        assert len(problem) < 3000
        return False
    assert isinstance(dataset, Dataset)
    for split in (dataset.train, dataset.test):
        assert check_boxes(split.y, dataset.classes) is None
    return True


@pytest.mark.parametrize("cases", CASES)
def test_random_changes_of_a_coco_file(cases: int, tmp_path: Path) -> None:
    write_coco(tmp_path)
    file = tmp_path / "town" / "annotations" / "instances_train2017.json"
    sound = json.loads(file.read_text())
    sound["annotations"][0] |= {"id": 1, "segmentation": [[1, 2, 9, 2, 9, 9]]}
    sound["annotations"].append({"image_id": 11, "category_id": 3, "segmentation": [[1, 2, 9, 2, 9, 9]]})
    draw, read_in_full = random.Random(0), 0
    for _ in range(cases):
        content = json.loads(json.dumps(sound))
        for _ in range(draw.randint(1, 3)):
            if isinstance(content, dict) and content:
                change_value(content, draw)
        text = json.dumps(content)
        if draw.random() < 0.3:
            text = change_text(text, draw)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        boxes = BoxKeys(outside="clip") if draw.random() < 0.5 else 64
        read_in_full += read(coco, tmp_path, path="town", boxes=boxes)
    assert 0.02 < read_in_full / cases < 0.98  # both ways are seen


@pytest.mark.parametrize("cases", CASES)
def test_random_changes_of_yolos_files(cases: int, tmp_path: Path) -> None:
    draw, read_in_full = random.Random(1), 0
    write_yolo(tmp_path)
    labels, names = tmp_path / "town" / "labels" / "train" / "0.txt", tmp_path / "town" / "data.yaml"
    for number in range(cases):
        line, text = "1 0.375 0.5 0.25 0.5\n0 0.1 0.1 0.5 0.1 0.5 0.5\n", "nc: 2\nnames: {0: person, 1: car}\n"
        for _ in range(draw.randint(1, 3)):
            if number % 2:
                line = change_text(line, draw)
            else:
                text = change_text(text, draw)
        labels.write_bytes(line.encode("utf-8", "surrogatepass"))
        names.write_bytes(text.encode("utf-8", "surrogatepass"))
        boxes = BoxKeys(outside="clip") if draw.random() < 0.5 else 64
        read_in_full += read(yolo, tmp_path, path="town", boxes=boxes)
    assert 0.02 < read_in_full / cases < 0.98


@pytest.mark.parametrize("cases", CASES)
def test_random_changes_of_carlas_files(cases: int, tmp_path: Path) -> None:
    draw, read_in_full = random.Random(2), 0
    write_carla(tmp_path)
    file = tmp_path / "drive" / "b" / "000001.xml"
    for _ in range(cases):
        text = voc(("vehicle", 10, 5, 20, 15))
        for _ in range(draw.randint(1, 2)):
            text = change_text(text, draw)
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        read_in_full += read(carla, tmp_path, path="drive")
    assert 0.02 < read_in_full / cases < 0.98
