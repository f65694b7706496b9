"""Annotated images as a dataset: boxes checked one by one, and images decoded and resized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from raysim.config.error_text import nearest, show
from raysim.data.dataset import Dataset, MissingData, Split
from raysim.data.decoding import Color, decode_dataset
from raysim.objectives.boxes import EDGE, pad_boxes
from raysim.system.errors import ConfigError

Row = tuple[float, float, float, float, float]
"""Class, x, y, w, h: a box in fractions of the image."""


@dataclass(frozen=True)
class AnnotatedImage:
    """An image file and its boxes."""

    path: Path
    rows: Sequence[Row]
    where: str
    """The file of its boxes, for errors."""


def row_of_box(label: int, box: Sequence[float], size: tuple[float, float], where: str) -> Row:
    """Return the row of a box (left, top, right, bottom) in an image of this width and height.

    Raises:
        ConfigError: the box is no box, has no area, or is not in the image.
    """
    left, top, right, bottom = box
    width, height = size
    found = f"{where}: found a box from ({left:g}, {top:g}) to ({right:g}, {bottom:g})"
    if not np.isfinite(box).all() or right <= left or bottom <= top:
        raise ConfigError(f"{found}, allowed: a right edge beyond the left one, and a bottom below the top")
    if min(left / width, top / height) < -EDGE or max(right / width, bottom / height) > 1 + EDGE:
        raise ConfigError(f"{found}, allowed: boxes in the image, from (0, 0) to ({width:g}, {height:g})")
    left, right = max(left, 0) / width, min(right, width) / width
    top, bottom = max(top, 0) / height, min(bottom, height) / height
    return float(label), (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


def label_of(name: object, names: Sequence[str], where: str) -> int:
    """Return the number of a class by its name. Raises ConfigError for an unknown one."""
    if name in names:
        return names.index(str(name))
    raise ConfigError(
        f"{where}: found the class {show(name)}, allowed: {', '.join(names)}{nearest(str(name), [*names])}"
    )


def read_dataset(
    train: Sequence[AnnotatedImage],
    test: Sequence[AnnotatedImage],
    names: Sequence[str],
    *,
    size: int,
    boxes: int,
    background: Color,
) -> Dataset:
    """Return the dataset of annotated images, RGB uint8 [N, 3, size, size], with at most `boxes` boxes each.

    Raises:
        MissingData: an image is missing.
        ConfigError: there are no images or no boxes, an image has too many boxes, or it cannot be read.
    """
    for part, images in (("train", train), ("test", test)):
        if not any(image.rows for image in images):
            raise ConfigError(f"dataset.{part}: found {len(images)} images without a box, allowed: at least one box")
        for image in images:
            if len(image.rows) > boxes:
                problem = f"found {len(image.rows)} boxes of one image, allowed: at most {boxes} (dataset.boxes)"
                raise ConfigError(f"{image.where}: {problem}")
            if not image.path.is_file():
                raise MissingData(f"dataset.path: there is no image {image.path}, which {image.where} names")
    of_train, of_test = ([(image.path, 0) for image in images] for images in (train, test))
    dataset = decode_dataset(of_train, of_test, len(names), tuple(names), size=size, grey=False, background=background)
    splits = [
        Split(split.x, pad_boxes([image.rows for image in images], boxes))
        for split, images in ((dataset.train, train), (dataset.test, test))
    ]
    return replace(dataset, train=splits[0], test=splits[1])
