"""A dataset: a training and a test split of samples and targets. Also subsets, and placeholders for missing files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.system.errors import ConfigError

Array = npt.NDArray[Any]
"""A numpy array; its dtype is documented where it is used."""

NamedShape = tuple[str, tuple[int, ...], int | None]
"""One of the arrays of a sample: its name, its shape, and its number of ids from 0, or None for numbers."""


class Unread(ABC):
    """Samples [N, *shape] that are read when they are indexed, in place of an array."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """As an array's."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """As an array's."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The bytes that this object has in memory."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """A digest of all that the samples follow from, without reading them."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the samples are: other samples with the same digest have another place."""

    @abstractmethod
    def take(self, rows: Array) -> Unread:
        """Return these rows (numbers or a mask). Nothing is read."""

    @abstractmethod
    def join(self, others: Sequence[Unread]) -> Unread:
        """Return these samples and then those of others of the same kind and shape. Nothing is read."""

    @abstractmethod
    def read_each(self, parts: Sequence[npt.NDArray[np.int64]]) -> Iterator[Array]:
        """Yield the samples of consecutive parts of rows (int64 [n] each), as new arrays, and read following parts
        ahead.

        Raises:
            RunError: samples cannot be read, or have changed.
        """

    @property
    def ndim(self) -> int:
        """As an array's."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice | Array) -> Array:
        """Return a sample, or samples, as indexing an array does."""
        chosen = np.arange(len(self))[rows]
        x = next(self.read_each([np.atleast_1d(chosen)]))
        return x if np.ndim(chosen) else x[0]


def take_rows(x: Array | Unread, rows: Array) -> Array | Unread:
    """Return these rows (numbers or a mask) of samples. Those that are unread stay so."""
    return x.take(rows) if isinstance(x, Unread) else x[rows]


def read_all(x: Array | Unread) -> Array:
    """Return samples as an array."""
    return x[:] if isinstance(x, Unread) else x


@dataclass(frozen=True, eq=False)
class Split:
    """Samples and their targets, row by row."""

    x: Array | Unread
    """uint8, float32 or int64 [N, *shape]. Images are C x H x W (uint8: 0..255); int64 are ids, such as text tokens.

    Images of `load: disk` are decoded when they are indexed."""
    y: Array
    """Labels, int64 [N] in 0..classes-1. Other objectives have targets [N, ...]: int64 in 0..classes-1, or float32.

    Targets [N, L] of objectives with an output at each position may be -100, which no loss and no metric counts."""
    clients: Array | None = None
    """The client id of each training sample (a writer, a user), if known: integers or strings [N]."""
    columns: Mapping[str, Array] = field(default_factory=dict)
    """What else is known of each sample, such as its time or site: name -> numbers, datetime64 or strings [N].

    Models do not see it. `scenario: by_column` orders samples by it.
    """

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Array) -> Split:
        """Return the split with only these rows (numbers or a mask)."""
        clients = None if self.clients is None else self.clients[rows]
        return Split(
            take_rows(self.x, rows), self.y[rows], clients, {name: self.columns[name][rows] for name in self.columns}
        )

    @property
    def labelled(self) -> bool:
        """Whether targets are labels: one integer per sample."""
        return self.y.ndim == 1 and self.y.dtype == np.int64


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split over the same classes."""

    train: Split
    test: Split
    classes: int
    """The number of classes, of samples or of boxes; 1 for other float targets."""
    names: tuple[str, ...] | None = None
    """The names of the classes, if known."""
    missing: tuple[str, ...] = ()
    """The datasets whose files are missing, if this is a placeholder without values."""
    vocabulary: int | None = None
    """The number of ids, from 0, if samples are ids (int64). The default is the largest id plus one."""
    words: tuple[str, ...] | None = None
    """The words with the ids 2, 3, ..., for texts: two datasets may give one word different ids."""
    categories: tuple[int, ...] = ()
    """For each of a table's last columns that are categories: how many ids it has, from 0. Ids are float32 in x."""
    arrays: tuple[NamedShape, ...] = ()
    """How a row of x [N, total] is made, if a sample is several arrays in turn (see raysim.data.arrays)."""
    tokenizer: str | None = None
    """The digest of the tokenizer, for texts with one: two tokenizers may give one id different meanings."""
    notes: tuple[str, ...] = ()
    """What the loader read, left out and changed, a phrase each; `raysim check` and a run's start show them."""
    doubts: tuple[str, ...] = ()
    """What is allowed, but is likely a mistake: a sentence each, with the advice. They are shown as warnings."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample: (C, H, W) for images, (D,) for features."""
        return tuple(int(size) for size in self.train.x.shape[1:])

    @property
    def dimensions(self) -> str:
        """The shape as text, such as 1 x 28 x 28, and the number of ids."""
        return " x ".join(map(str, self.shape)) + (f" of {self.vocabulary:,} ids" if self.vocabulary else "")


@dataclass(frozen=True)
class Declared:
    """The published contents of a dataset's files: a sample's shape and dtype, and the numbers of samples.

    `clients` is the number of different client ids of the training samples, or 0 without client ids. `columns` has the
    training and the test samples' values of each column.
    """

    shape: tuple[int, ...]
    train: int
    test: int
    classes: int
    dtype: str = "uint8"
    vocabulary: int | None = None
    clients: int = 0
    columns: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)


class MissingData(ConfigError):
    """The files of a dataset are missing. `raysim check` estimates from their `declared` contents."""

    def __init__(self, message: str, declared: Declared | None = None) -> None:
        super().__init__(message)
        self.declared = declared


def stand_in(declared: Declared, name: str) -> Dataset:
    """Return a dataset of this shape and size without values. Classes and clients are of equal size, in turn."""
    train, test = (
        Split(
            blank(samples, declared.shape, declared.dtype),
            np.arange(samples) % declared.classes,
            columns={column: values[part] for column, values in declared.columns.items()},
        )
        for part, samples in enumerate((declared.train, declared.test))
    )
    if declared.clients:
        train = replace(train, clients=np.arange(declared.train) // declared.classes % declared.clients)
    return Dataset(train, test, declared.classes, missing=(name,), vocabulary=declared.vocabulary)


def blank(samples: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Return read-only zeros [samples, *shape] that take no memory."""
    return np.broadcast_to(np.zeros((), dtype), (samples, *shape))


def draw_for_testing(samples: int, fraction: float, generator: np.random.Generator) -> set[int]:
    """Draw the test samples out of at least two: the indices of a fraction, at least one and never all."""
    count = min(max(1, round(fraction * samples)), samples - 1)
    return set(generator.permutation(samples)[:count].tolist())


def channels_first(x: Array) -> Array:
    """Return images [N, H, W] or [N, H, W, C] as contiguous [N, C, H, W]. Other samples become contiguous only."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4:
        x = x.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x)


def as_float32(values: Array, where: Callable[[tuple[int, ...]], str]) -> Array:
    """Return numbers as float32. `where` returns the beginning of an error message about the number at an index.

    Raises:
        ConfigError: a finite number is too large.
    """
    with np.errstate(over="ignore"):  # a warning would show this line, and not the number
        small = values.astype(np.float32)
    large = np.isinf(small) & np.isfinite(values)
    if large.any():
        index = tuple(map(int, np.unravel_index(large.argmax(), large.shape)))
        allowed = "-3.4e38 to 3.4e38, the range of float32; rescale such numbers"
        raise ConfigError(f"{where(index)}: found {values[index]:.3g}, allowed: {allowed}")
    return small


def subsample(dataset: Dataset, train_samples: int, generator: np.random.Generator) -> Dataset:
    """Return the dataset with `train_samples` training samples, drawn without replacement. The test split is unchanged.

    Raises:
        ConfigError: the dataset has fewer training samples.
    """
    train = dataset.train
    if train_samples > len(train):
        raise ConfigError(f"dataset.train_samples: found {train_samples}, allowed: 1 to {len(train)}, which there are")
    rows = np.sort(generator.permutation(len(train))[:train_samples])
    return replace(dataset, train=train.take(rows))
