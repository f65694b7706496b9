"""A data set: a training and a test split of samples and targets, the rules for them, and how it is loaded."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.config.signature import is_own, place_of
from raysim.system.capacity import GIB, MOST_FOR_DATA, this_machine
from raysim.system.errors import ConfigError, locate_errors

DEFAULT_ROOT = Path("~/.cache/raysim")
CLASS_BYTES = 1000  # what a class or an id takes at least: its weights, and what training keeps beside them

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


def check_dataset(dataset: Dataset, name: str) -> Dataset:
    """Return `dataset` if it keeps the rules above; `name` is its name in errors.

    Raises:
        ConfigError: not a Dataset, an empty or uneven split, a dtype other than uint8, float32 or int64, values that
            are not finite, labels outside 0..classes-1, ids outside 0..vocabulary-1, more or fewer names than classes,
            splits whose samples or targets differ in shape or dtype, or client ids that are no whole numbers or
            strings, one for each sample.
    """
    if not isinstance(dataset, Dataset):
        raise ConfigError(f"data set {name}: got {type(dataset).__name__}; return a raysim.data.dataset.Dataset")
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        arrays = () if not isinstance(split, Split) else (split.x, split.y, *[split.clients][split.clients is None :])
        if not arrays or not all(isinstance(array, np.ndarray) for array in arrays):
            found = ", ".join(type(array).__name__ for array in arrays or (split,))
            raise ConfigError(f"data set {name}, {part} split: found {found}; use Split(x, y) of numpy arrays")
    if not isinstance(dataset.classes, int) or dataset.classes < 1:
        raise ConfigError(f"data set {name}: classes is {dataset.classes!r}; it must be a whole number, at least 1")
    require_memory(dataset.classes * CLASS_BYTES, f"data set {name}", f"{dataset.classes} classes")
    if dataset.names is not None and len(dataset.names) != dataset.classes:
        raise ConfigError(f"data set {name}: {len(dataset.names)} names for {dataset.classes} classes; name each once")
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        _check_split(split, f"data set {name}, {part} split", dataset.classes)
    train, test = dataset.train.x, dataset.test.x
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise ConfigError(
            f"data set {name}: training samples are {train.dtype} {train.shape[1:]}, test samples are {test.dtype} "
            f"{test.shape[1:]}; they must be alike"
        )
    y, tested = dataset.train.y, dataset.test.y
    if y.shape[1:] != tested.shape[1:] or y.dtype != tested.dtype:
        raise ConfigError(
            f"data set {name}: training targets are {y.dtype} {y.shape[1:]}, test targets are {tested.dtype} "
            f"{tested.shape[1:]}; they must be alike"
        )
    return _check_ids(dataset, name) if train.dtype == np.int64 else dataset


def _check_ids(dataset: Dataset, name: str) -> Dataset:
    """Return a data set of ids, whose number is known then."""
    both = (dataset.train.x, dataset.test.x)
    lowest, highest = min(int(x.min()) for x in both), max(int(x.max()) for x in both)
    known = dataset.vocabulary or highest + 1
    if lowest < 0 or highest >= known:
        raise ConfigError(f"data set {name}: ids (int64) run from {lowest} to {highest}; allowed are 0..{known - 1}")
    require_memory(known * CLASS_BYTES, f"data set {name}", f"{known} ids")
    return replace(dataset, vocabulary=known)


def _check_split(split: Split, where: str, classes: int) -> None:
    x, y = split.x, split.y
    if x.dtype not in (np.uint8, np.float32, np.int64):
        raise ConfigError(f"{where}: x is {x.dtype}; use uint8 (0..255), float32, or int64 for ids")
    if y.dtype not in (np.int64, np.float32) or y.ndim < 1 or 0 in y.shape[1:]:
        words = "use int64 of shape [N], or int64 or float32 of shape [N, ...]"
        raise ConfigError(f"{where}: y is {y.dtype} of shape {y.shape}; {words}")
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise ConfigError(f"{where}: x has shape {x.shape}; use [N, features] or [N, C, H, W]")
    if len(x) != len(y):
        raise ConfigError(f"{where}: {len(x)} samples but {len(y)} labels; there must be one label per sample")
    if not len(y):
        raise ConfigError(f"{where}: no samples; at least one is needed")
    if y.dtype == np.float32:
        if not np.isfinite(y).all():
            raise ConfigError(f"{where}: y holds NaN or infinite values; every value must be finite")
    elif y.min() < 0 or y.max() >= classes:
        raise ConfigError(f"{where}: labels run from {y.min()} to {y.max()}; allowed are 0..{classes - 1}")
    if x.dtype == np.float32 and not np.isfinite(x).all():
        raise ConfigError(f"{where}: x holds NaN or infinite values; every value must be finite")
    if split.clients is not None:
        check_clients(split.clients, f"{where}: clients", len(y))


def check_clients(clients: Array, where: str, samples: int) -> Array:
    """Return client ids if they are whole numbers or strings, one for each of so many samples. Raises ConfigError."""
    if clients.dtype.kind not in "iuU" or clients.shape != (samples,):
        found = f"{clients.dtype} of shape {clients.shape}"
        raise ConfigError(f"{where}: found {found}; use whole numbers or strings of shape [{samples}], an id each")
    return clients


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


def resolve_root(root: str | None) -> Path:
    """Return the folder of the data sets: `root`, else $RAYSIM_DATA, else ~/.cache/raysim (made if absent).

    Raises:
        ConfigError: `root` or $RAYSIM_DATA is given and is not a folder; only the default is ever made.
    """
    key, given = ("RAYSIM_DATA", os.environ.get("RAYSIM_DATA") or None) if root is None else ("dataset.root", root)
    if given is not None:
        path = Path(given).expanduser().absolute()
        if not path.is_dir():
            raise ConfigError(f"{key}: there is no folder {path}; make it, or leave {key} out to use {DEFAULT_ROOT}")
        return path
    path = DEFAULT_ROOT.expanduser()
    with suppress(OSError):  # a home that cannot be written to is an error only for a set to be stored there
        path.mkdir(parents=True, exist_ok=True)
    return path


def load_dataset(
    function: Callable[..., Dataset], root: str | None, download: bool, keys: Mapping[str, Any]
) -> Dataset:
    """Call a data set's `function` with its YAML `keys` and check what it returns.

    Raises:
        MissingData: the files are missing or cannot be read.
        ConfigError: the root is missing, or the data break the rules of `check_dataset`.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        with locate_errors(f"data set {name}"):
            made = function(resolve_root(root), download, **keys)
        return check_dataset(made, place_of(function) if is_own(function) else name)
    except OSError as error:
        raise MissingData(f"data set {name}: its files cannot be read: {error}"[:300]) from error


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
