"""Images and boxes in COCO's layout."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le, MinLen, doc

from raysim.config.error_text import show
from raysim.data.dataset import Dataset
from raysim.data.detection.annotated import AnnotatedImage, Row, label_of, read_dataset, row_of_box
from raysim.data.paths import require_file, require_folder
from raysim.system.errors import ConfigError
from raysim.system.home import expand

Number = int | float


def coco(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the folder of images and annotations; relative, it starts at dataset.root")],
    train: Annotated[
        str, doc("the folder of the images to train on, and the end of their annotations' name")
    ] = "train2017",
    test: Annotated[str, doc("the folder of the images to test on")] = "val2017",
    classes: Annotated[
        Annotated[tuple[str, ...], MinLen(1)] | None, doc("the classes that are used; null is all categories")
    ] = None,
    size: Annotated[int, Ge(8), Le(4096), doc("height and width of the resized images, for any proportions")] = 128,
    boxes: Annotated[int, Ge(1), Le(1000), doc("the most boxes of an image")] = 64,
) -> Dataset:
    """Images with boxes in COCO's layout: TRAIN/*.jpg and annotations/instances_TRAIN.json (Lin et al., ECCV 2014).

    Classes are numbered in the order of `classes`, or of the categories' ids in the training file. Left out are boxes
    of other categories, those of crowds (iscrowd) and those of width or height 0. Pillow's bilinear filter resizes the
    images.

    Raises:
        MissingData: a folder, a file or an image is missing.
        ConfigError: a file is damaged, or a box has no area, is not in its image, or is of an unknown category.
    """
    folder = require_folder(root / expand("dataset.path", path))
    files = [folder / "annotations" / f"instances_{part}.json" for part in (train, test)]
    read = [_read(key, file) for key, file in zip(("train", "test"), files, strict=True)]
    known = {one["id"]: str(one["name"]) for one in sorted(read[0]["categories"], key=lambda one: int(one["id"]))}
    names = tuple(known.values()) if classes is None else classes
    for name in names:
        label_of(name, [*known.values()], "dataset.classes")
    training, testing = (
        _images(content, file, folder / part, names)
        for content, file, part in zip(read, files, (train, test), strict=True)
    )
    return read_dataset(training, testing, names, size=size, boxes=boxes)


def _read(key: str, file: Path) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    require_file(f"dataset.{key}", file)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:  # also what is no UTF-8
        raise ConfigError(f"dataset.{key}: {file} is no JSON ({error})") from error
    lists = {"images": ("id", "file_name", "width", "height"), "annotations": ("image_id", "category_id", "bbox"),
             "categories": ("id", "name")}  # fmt: skip
    for name, fields in lists.items():
        rows = content.get(name) if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise ConfigError(f"dataset.{key}: {file} has no list {name}, allowed: COCO's {', '.join(lists)}")
        for number, row in enumerate(rows):
            lacking = [field for field in fields if not isinstance(row, dict) or field not in row]
            if lacking:
                raise ConfigError(
                    f"dataset.{key}: {file}, {name}[{number}]: found no {lacking[0]}, allowed: {', '.join(fields)}"
                )
    return dict(content)


def _images(
    content: Mapping[str, Sequence[Mapping[str, Any]]], file: Path, folder: Path, names: Sequence[str]
) -> list[AnnotatedImage]:
    """Return the images in the order of the file."""
    sizes: dict[object, tuple[float, float]] = {}
    for number, image in enumerate(content["images"]):
        width, height = image["width"], image["height"]
        if not all(isinstance(side, Number) and side > 0 for side in (width, height)):
            where = f"{file}, images[{number}]"
            raise ConfigError(f"{where}: found a size of {show(width)} x {show(height)}, allowed: numbers above 0")
        sizes[image["id"]] = (width, height)
    categories = {one["id"]: str(one["name"]) for one in content["categories"]}
    rows: dict[object, list[Row]] = {image: [] for image in sizes}
    for number, annotation in enumerate(content["annotations"]):
        where = f"{file}, annotations[{number}]"
        image, category, box = (annotation[name] for name in ("image_id", "category_id", "bbox"))
        if image not in sizes:
            raise ConfigError(f"{where}: found the image_id {show(image)}, allowed: the id of one of its images")
        if category not in categories:
            ids = ", ".join(map(str, categories))
            raise ConfigError(f"{where}: found the category_id {show(category)}, allowed: {ids}")
        if not (isinstance(box, list) and len(box) == 4 and all(isinstance(side, Number) for side in box)):
            raise ConfigError(f"{where}: found the bbox {show(box)}, allowed: [left, top, width, height] in pixels")
        if annotation.get("iscrowd") or categories[category] not in names:
            continue
        left, top, width, height = box
        if 0 in (width, height):
            continue  # train2017 has two such boxes
        corners = left, top, left + width, top + height
        rows[image].append(row_of_box(names.index(categories[category]), corners, sizes[image], where))
    return [AnnotatedImage(folder / str(one["file_name"]), rows[one["id"]], str(file)) for one in content["images"]]
