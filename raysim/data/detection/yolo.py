"""Images and boxes in the layout of YOLO's tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import yaml
from annotated_types import Ge, Le, MinLen, doc

from raysim.config.error_text import show
from raysim.data.dataset import Dataset
from raysim.data.decoding import list_images
from raysim.data.detection.annotated import AnnotatedImage, Row, read_dataset, row_of_box
from raysim.data.paths import require_folder
from raysim.system.errors import ConfigError
from raysim.system.home import expand

ALLOWED = "class, x, y, width and height, a whole number and four fractions of the image"


def yolo(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the folder with images and labels; relative, it starts at dataset.root")],
    train: Annotated[str, doc("the folder, in images and in labels, to train on")] = "train",
    test: Annotated[str, doc("the folder to test on")] = "val",
    classes: Annotated[
        Annotated[tuple[str, ...], MinLen(1)] | None, doc("the classes' names in order; null is `names` of data.yaml")
    ] = None,
    size: Annotated[int, Ge(8), Le(4096), doc("height and width of the resized images, for any proportions")] = 128,
    boxes: Annotated[int, Ge(1), Le(1000), doc("the most boxes of an image")] = 64,
) -> Dataset:
    """Images with boxes in YOLO's layout: images/TRAIN/NAME.jpg, labels/TRAIN/NAME.txt, and data.yaml with the names.

    A line of a text file is `class x y width height`: the center and the size as fractions of the image. An image
    without a text file has no boxes. Pillow's bilinear filter resizes the images.

    Raises:
        MissingData: a folder is missing.
        ConfigError: a line is malformed, or its box has no area, is not in the image, or is of an unknown class.
    """
    folder = require_folder(root / expand("dataset.path", path))
    names = _read_names(folder / "data.yaml") if classes is None else classes
    training, testing = (
        [
            AnnotatedImage(image, _read_rows(labels, names), str(labels))
            for image in list_images(require_folder(folder / "images" / part))
            for labels in [folder / "labels" / part / f"{image.stem}.txt"]
        ]
        for part in (train, test)
    )
    return read_dataset(training, testing, names, size=size, boxes=boxes)


def _read_names(file: Path) -> Sequence[str]:
    """Return the names in data.yaml: a list, or a mapping from 0, 1, ..."""
    if not file.is_file():
        raise ConfigError(
            f"dataset.classes: found null and no file {file}, allowed: one of both, which names the classes"
        )
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file}: is no YAML ({next(iter(str(error).splitlines()), '')})") from error
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, dict) and sorted(names, key=str) == sorted(range(len(names)), key=str):
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise ConfigError(f"{file}: found names {show(names)}, allowed: a list of names, or a mapping from 0, 1, ...")
    return tuple(map(str, names))


def _read_rows(file: Path, names: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    if not file.is_file():
        return rows
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            label, (x, y, w, h) = int(line.split()[0]), map(float, line.split()[1:])
        except ValueError as error:
            raise ConfigError(f"{where}: found {show(line.strip())}, allowed: {ALLOWED}") from error
        if not 0 <= label < len(names):
            raise ConfigError(f"{where}: found the class {label}, allowed: 0 to {len(names) - 1}")
        rows.append(row_of_box(label, (x - w / 2, y - h / 2, x + w / 2, y + h / 2), (1.0, 1.0), where))
    return rows
