"""Several data sets as the domains of one: the same labels in images that look different."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from raysim.data.dataset import Array, Dataset, Split
from raysim.data.scenario import Task
from raysim.system.errors import ConfigError

ROWS = 2**20  # rows of pixels resized at once


def domains(named: Sequence[tuple[str, Dataset]], reference: int) -> tuple[Dataset, list[Task]]:
    """Join data sets over the same classes into one, and return it with one task for each, named like it.

    Images are resized to the height and width of named[reference] by PIL's bilinear filter; where some are grey and
    some RGB, the grey ones get three equal channels. Other samples must have the same shape in all data sets.

    Raises:
        ConfigError: their classes differ, or their samples cannot be made alike.
    """
    _check(named, reference)
    shapes = [found.shape for _, found in named]
    sets = [found for _, found in named]
    if len(set(shapes)) > 1:
        sets = [_make_alike(found, shapes[reference][1:], max(shape[0] for shape in shapes)) for found in sets]
    train, test = _concatenate([found.train for found in sets]), _concatenate([found.test for found in sets])
    classes = sets[reference].classes
    tasks = [
        Task(name, tuple(range(classes)), None, own_train, own_test)
        for (name, _), own_train, own_test in zip(
            named, _rows([found.train for found in sets]), _rows([found.test for found in sets]), strict=True
        )
    ]
    return Dataset(train, test, classes, sets[reference].names), tasks


def _check(named: Sequence[tuple[str, Dataset]], reference: int) -> None:
    first_name, first = named[reference]
    for name, found in named:
        where = f"scenario.shift.domains: {name} has"
        if found.names is not None and first.names is not None and found.names != first.names:
            only = min(set(found.names) ^ set(first.names))
            whose = name if only in found.names else first_name
            raise ConfigError(f"scenario.shift.domains: only {whose} has a class '{only}'; all must have the same ones")
        if found.classes != first.classes:
            raise ConfigError(
                f"{where} {found.classes} classes, {first_name} has {first.classes}; all must have the same ones"
            )
        if found.train.x.dtype != first.train.x.dtype:
            raise ConfigError(
                f"{where} samples of {found.train.x.dtype}, {first_name} of {first.train.x.dtype}; save all as uint8"
            )
        if found.shape == first.shape:
            continue
        if len(found.shape) != 3 or len(first.shape) != 3:
            raise ConfigError(
                f"{where} samples of shape {found.shape}, {first_name} of {first.shape}; only images (C, H, W) can be "
                "made alike"
            )
        if found.shape[0] != first.shape[0] and {found.shape[0], first.shape[0]} != {1, 3}:
            raise ConfigError(
                f"{where} {found.shape[0]} channels, {first_name} has {first.shape[0]}; only grey (1) and RGB (3) can "
                "be made alike"
            )


def _make_alike(found: Dataset, size: tuple[int, ...], channels: int) -> Dataset:
    train, test = (
        Split(np.repeat(x, channels // x.shape[1], axis=1), split.y)
        for split in (found.train, found.test)
        for x in [resize(split.x, size)]
    )
    return replace(found, train=train, test=test)


def resize(images: Array, size: tuple[int, ...]) -> Array:
    """Return images [N, C, H, W] (uint8 or float32) as [N, C, *size], resized by PIL's bilinear filter.

    PIL resizes along the rows, rounds, then resizes along the columns. Two calls on many images stacked into one do the
    same, the second on their transposes. (PIL may start with the columns where the height shrinks and the width grows,
    which can make a difference of one grey level.)
    """
    height, width = size
    return _along_rows(_along_rows(images, width).swapaxes(2, 3), height).swapaxes(2, 3)


def _along_rows(images: Array, width: int) -> Array:
    """Return images [N, C, H, W] resized to [N, C, H, width]."""
    n, channels, height, before = images.shape
    if before == width:
        return images
    tall = np.ascontiguousarray(images).reshape(-1, before)
    parts = [
        np.asarray(Image.fromarray(part).resize((width, len(part)), Image.Resampling.BILINEAR))
        for part in (tall[start : start + ROWS] for start in range(0, len(tall), ROWS))
    ]
    return np.concatenate(parts).reshape(n, channels, height, width)


def _rows(splits: Sequence[Split]) -> list[npt.NDArray[np.int32]]:
    """Return the rows of the joined split that come from each split."""
    sizes = [len(split) for split in splits]
    return np.split(np.arange(sum(sizes), dtype=np.int32), np.cumsum(sizes)[:-1])


def _concatenate(splits: Sequence[Split]) -> Split:
    return Split(np.concatenate([split.x for split in splits]), np.concatenate([split.y for split in splits]))
