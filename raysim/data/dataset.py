"""A data set: a training and a test split of samples and targets; parts of one, and stand-ins for files."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.system.capacity import GIB, MOST_FOR_DATA, this_machine
from raysim.system.errors import ConfigError

Array = npt.NDArray[Any]
"""A numpy array whose dtype is given in words where it is used."""


@dataclass(frozen=True, eq=False)
class Split:
    """Samples and their targets, row by row.

    x: uint8, float32 or int64 [N, *shape]; images are C x H x W (uint8: 0..255), int64 are ids, such as tokens of text.
    y: int64 [N], labels in 0..classes-1; or the targets of another objective, of any shape [N, ...]: int64 in
        0..classes-1, such as ids of tokens or 0/1 vectors, or float32.
    clients: whose each sample is (a writer's, a user's), whole numbers or strings [N], where that is known; of the
        training split, by which a `natural` partition deals it.
    """

    x: Array
    y: Array
    clients: Array | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Array) -> Split:
        """Return these rows (numbers or a mask)."""
        return Split(self.x[rows], self.y[rows], None if self.clients is None else self.clients[rows])

    @property
    def labelled(self) -> bool:
        """Whether targets are labels: one whole number for each sample."""
        return self.y.ndim == 1 and self.y.dtype == np.int64


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split over the same classes, whose names may be known; float targets count as one class.

    missing: the data sets whose files are not there, where this one stands in for them: without values.
    vocabulary: how many ids there are, from 0, where samples are ids (int64); by default the largest and one.
    words: what the ids from 2 on stand for, where two data sets may have other ids for the same words.
    """

    train: Split
    test: Split
    classes: int
    names: tuple[str, ...] | None = None
    missing: tuple[str, ...] = ()
    vocabulary: int | None = None
    words: tuple[str, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample: (C, H, W) for images, (D,) for features."""
        return tuple(int(size) for size in self.train.x.shape[1:])

    @property
    def dimensions(self) -> str:
        """The shape in words, 1 x 28 x 28, and how many ids there are."""
        return " x ".join(map(str, self.shape)) + (f" of {self.vocabulary:,} ids" if self.vocabulary else "")


@dataclass(frozen=True)
class Declared:
    """What a data set's files hold, known without them: the shape and dtype of a sample, and how many there are.

    `clients` is the number of different client ids of the training samples; 0 where these have none.
    """

    shape: tuple[int, ...]
    train: int
    test: int
    classes: int
    dtype: str = "uint8"
    vocabulary: int | None = None
    clients: int = 0


class MissingData(ConfigError):
    """A data set's files are not there. `raysim check` reckons with what they are `declared` to hold."""

    def __init__(self, message: str, declared: Declared | None = None) -> None:
        super().__init__(message)
        self.declared = declared


def stand_in(declared: Declared, name: str) -> Dataset:
    """Return a data set of this shape and size without values: its classes, and clients, are equal and take turns."""
    train, test = (
        Split(blank(samples, declared.shape, declared.dtype), np.arange(samples) % declared.classes)
        for samples in (declared.train, declared.test)
    )
    if declared.clients:
        train = replace(train, clients=np.arange(declared.train) // declared.classes % declared.clients)
    return Dataset(train, test, declared.classes, missing=(name,), vocabulary=declared.vocabulary)


def blank(samples: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Return zeros [samples, *shape] that take no memory; read only."""
    return np.broadcast_to(np.zeros((), dtype), (samples, *shape))


def draw_for_testing(samples: int, fraction: float, generator: np.random.Generator) -> set[int]:
    """Draw a fraction of so many samples, two or more: the places of those to test on, at least one, and not all."""
    count = min(max(1, round(fraction * samples)), samples - 1)
    return set(generator.permutation(samples)[:count].tolist())


def channels_first(x: Array) -> Array:
    """Return images [N, H, W] or [N, H, W, C] as contiguous [N, C, H, W], and other samples contiguous."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4:
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x)


def require_memory(nbytes: int, key: str, found: object) -> None:
    """Refuse arrays of more than half of this machine's memory; `key` and `found` name the setting that asks for them.

    Raises:
        ConfigError: `nbytes` is more than that.
    """
    most = MOST_FOR_DATA * (this_machine().memory or math.inf)
    if nbytes > most:
        raise ConfigError(
            f"{key}: found {found}, which takes {nbytes / GIB:,.1f} GiB, allowed: what fits into {most / GIB:.1f} "
            "GiB, half of this machine's memory"
        )


def subsample(dataset: Dataset, train_samples: int, generator: np.random.Generator) -> Dataset:
    """Return the data set with `train_samples` of its training samples, drawn without replacement; tests stay whole.

    Raises:
        ConfigError: it has fewer.
    """
    train = dataset.train
    if train_samples > len(train):
        raise ConfigError(f"dataset.train_samples: found {train_samples}, allowed: 1 to {len(train)}, which there are")
    rows = np.sort(generator.permutation(len(train))[:train_samples])
    return replace(dataset, train=train.take(rows))
