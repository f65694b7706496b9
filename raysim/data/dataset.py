"""A data set: a training and a test split of samples and labels, and the rules for them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.system.errors import ConfigError

Array = npt.NDArray[Any]
"""A numpy array whose dtype is given in words where it is used."""


@dataclass(frozen=True, eq=False)
class Split:
    """Samples and their labels, row by row.

    x: uint8 or float32 [N, *shape]; images are C x H x W (uint8: 0..255).
    y: int64 [N], labels in 0..classes-1.
    """

    x: Array
    y: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split over the same classes, whose names may be known."""

    train: Split
    test: Split
    classes: int
    names: tuple[str, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample: (C, H, W) for images, (D,) for features."""
        return tuple(int(size) for size in self.train.x.shape[1:])


def check_dataset(dataset: Dataset, name: str) -> Dataset:
    """Return `dataset` if it keeps the rules above; `name` is its name in errors.

    Raises:
        ConfigError: not a Dataset, an empty or uneven split, a dtype other than uint8 or float32, values that are
            not finite, labels outside 0..classes-1, or splits whose samples differ in shape or dtype.
    """
    if not isinstance(dataset, Dataset):
        raise ConfigError(f"data set {name}: got {type(dataset).__name__}; return a raysim.data.dataset.Dataset")
    if dataset.classes < 1:
        raise ConfigError(f"data set {name}: classes is {dataset.classes}; it must be at least 1")
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        _check_split(split, f"data set {name}, {part} split", dataset.classes)
    train, test = dataset.train.x, dataset.test.x
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise ConfigError(
            f"data set {name}: training samples are {train.dtype} {train.shape[1:]}, test samples are {test.dtype} "
            f"{test.shape[1:]}; they must be alike"
        )
    return dataset


def _check_split(split: Split, where: str, classes: int) -> None:
    x, y = split.x, split.y
    if x.dtype not in (np.uint8, np.float32):
        raise ConfigError(f"{where}: x is {x.dtype}; use uint8 (0..255) or float32")
    if y.dtype != np.int64 or y.ndim != 1:
        raise ConfigError(f"{where}: y is {y.dtype} of shape {y.shape}; use int64 of shape [N]")
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise ConfigError(f"{where}: x has shape {x.shape}; use [N, features] or [N, C, H, W]")
    if len(x) != len(y):
        raise ConfigError(f"{where}: {len(x)} samples but {len(y)} labels; there must be one label per sample")
    if not len(y):
        raise ConfigError(f"{where}: no samples; at least one is needed")
    if y.min() < 0 or y.max() >= classes:
        raise ConfigError(f"{where}: labels run from {y.min()} to {y.max()}; allowed are 0..{classes - 1}")
    if x.dtype == np.float32 and not np.isfinite(x).all():
        raise ConfigError(f"{where}: x holds NaN or infinite values; every value must be finite")


def channels_first(x: Array) -> Array:
    """Return images [N, H, W] or [N, H, W, C] as contiguous [N, C, H, W], and other samples contiguous."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4:
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x)
