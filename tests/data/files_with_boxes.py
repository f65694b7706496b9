"""Small folders of images with boxes, in COCO's, YOLO's and CARLA's layouts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

WIDE, HIGH = 40, 20  # pixels of every image
BOX = (10, 5, 20, 15)  # left, top, right, bottom: x 15/40, y 10/20, w 10/40, h 10/20
ROW = [0.375, 0.5, 0.25, 0.5]


def save(path: Path, gray: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (WIDE, HIGH), (gray, gray, gray)).save(path)


def write_coco(root: Path, change: Callable[[dict[str, Any]], object] = lambda content: None) -> None:
    """Two training images, the second without boxes, and one test image; categories 3 and 7."""
    left, top, right, bottom = BOX
    for part, count in (("train2017", 2), ("val2017", 1)):
        content: dict[str, Any] = {
            "images": [{"id": 10 + k, "file_name": f"{k}.png", "width": WIDE, "height": HIGH} for k in range(count)],
            "annotations": [
                {"image_id": 10, "category_id": 7, "bbox": [left, top, right - left, bottom - top], "iscrowd": 0},
                {"image_id": 10, "category_id": 3, "bbox": [0, 0, WIDE, HIGH]},
                {"image_id": 10, "category_id": 3, "bbox": [0, 0, 9, 9], "iscrowd": 1},
            ],
            "categories": [{"id": 7, "name": "car"}, {"id": 3, "name": "person"}],
        }
        if part == "train2017":
            change(content)
        (root / "town" / "annotations").mkdir(parents=True, exist_ok=True)
        (root / "town" / "annotations" / f"instances_{part}.json").write_text(json.dumps(content))
        for k in range(count):
            save(root / "town" / part / f"{k}.png", 50 + k)


def write_yolo(root: Path, line: str = "1 0.375 0.5 0.25 0.5", names: str = "names: [person, car]") -> None:
    for part in ("train", "val"):
        for k in range(2):
            save(root / "town" / "images" / part / f"{k}.png", 50 + k)
        labels = root / "town" / "labels" / part
        labels.mkdir(parents=True, exist_ok=True)
        (labels / "0.txt").write_text(f"0 0.5 0.5 1 1\n\n{line if part == 'train' else '1 0.5 0.5 0.5 0.5'}\n")
    (root / "town" / "data.yaml").write_text(names)


def voc(*objects: tuple[str, Any, Any, Any, Any]) -> str:
    """A file as pascal_voc_writer writes it, for CARLA's tutorial."""
    edges = ("xmin", "ymin", "xmax", "ymax")
    rows = "".join(
        f"<object><name>{name}</name><bndbox>{''.join(f'<{e}>{v}</{e}>' for e, v in zip(edges, box, strict=True))}"
        "</bndbox></object>"
        for name, *box in objects
    )
    return f"<annotation><size><width>{WIDE}</width><height>{HIGH}</height><depth>3</depth></size>{rows}</annotation>"


def write_carla(root: Path, text: str | None = None) -> None:
    """Two vehicles with five frames each; every frame but the fourth has a box."""
    for vehicle in ("a", "b"):
        for k in range(5):
            save(root / "drive" / vehicle / f"{k:06}.png", 10 * k)
            if k != 3:
                (root / "drive" / vehicle / f"{k:06}.xml").write_text(voc(("vehicle", *BOX), ("walker", 0, 0, 4, 9)))
    if text is not None:
        (root / "drive" / "b" / "000001.xml").write_text(text)
