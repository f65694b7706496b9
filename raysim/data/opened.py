"""A client's samples out of a stream of the user's own: an iterator that can be opened at any position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from raysim.data.augmentation import Augmentation
from raysim.data.dataset import Array, Dataset, Split
from raysim.data.pixels import Source
from raysim.errors import RunError

Opener = Callable[[int, int], Iterator[tuple[Array, int]]]
"""stream(client, start): the samples (x, y) of a client from position `start` on, the same ones each time."""


class Opened:
    """What a Source is, for one client's stream: it holds the window and what the memory refers to, and no more.

    Args:
        opener: the user's stream.
        client: whose.
        like: the data set whose test samples these must be like, in shape, dtype and classes.
        source: makes a Source of a split, without maps.
    """

    def __init__(self, opener: Opener, client: int, like: Dataset, source: Callable[[Split], Source]) -> None:
        self._open = opener
        self._client = client
        self._like = like
        self._source = source
        self._positions = np.array([-1])  # nothing yet: a sample that no position refers to stands in
        self._held = source(Split(like.train.x[:1], like.train.y[:1]))

    @property
    def augment(self) -> tuple[Augmentation, ...]:
        """What training samples are augmented by."""
        return self._held.augment

    def hold(self, positions: Tensor) -> None:
        """Hold the samples at these positions (int64), in place of those held before.

        Raises:
            RunError: the stream ends before, or its samples are not like the data set's.
        """
        wanted = np.unique(positions.numpy())
        kept = np.isin(wanted, self._positions)
        rows = np.searchsorted(self._positions, wanted[kept])
        x = np.empty((len(wanted), *self._like.shape), self._like.train.x.dtype)
        y = np.empty(len(wanted), np.int64)
        x[kept] = self._held.x.cpu().numpy()[rows].reshape(-1, *self._like.shape)
        y[kept] = self._held.y.cpu().numpy()[rows]
        missing = np.flatnonzero(~kept)
        for part in np.split(missing, np.flatnonzero(np.diff(wanted[missing]) != 1) + 1):
            for row, (sample, label) in zip(part, self._read(wanted[part]), strict=True):
                x[row], y[row] = sample, label
        self._positions, self._held = wanted, self._source(Split(x, y))

    def labels(self, rows: Tensor) -> Tensor:
        """The labels (int64 [B]) at positions (int64 [B]), where those are."""
        held = self._rows(rows)  # which may change what is held
        return self._held.labels(held)

    def draw(self, generator: np.random.Generator, n: int) -> Array:
        """See Source."""
        return self._held.draw(generator, n)

    def fetch(self, rows: Tensor, task: int | Tensor, drawn: Tensor | None = None) -> Tensor:
        """See Source; `rows` are positions, and no task changes what they show."""
        held = self._rows(rows)
        return self._held.fetch(held, 0, drawn)

    def _rows(self, positions: Tensor) -> Tensor:
        """Return where positions are held; those that are not (Joint's, say) are read again."""
        wanted = positions.cpu()
        if not np.isin(wanted.numpy(), self._positions).all():
            self.hold(torch.cat([torch.from_numpy(self._positions), wanted]))
        return torch.from_numpy(np.searchsorted(self._positions, wanted.numpy())).to(positions.device)

    def _read(self, positions: Array) -> Iterator[tuple[Array, int]]:
        """Read consecutive positions."""
        if not len(positions):
            return
        start, found = int(positions[0]), 0
        for sample, label in islice(self._open(self._client, start), len(positions)):
            yield self._checked(start + found, sample, label)
            found += 1
        if found < len(positions):
            raise RunError(
                f"client {self._client}: its stream ended at position {start + found}, but {start + len(positions)} "
                "samples are asked for; lower scenario.boundaries.asynchronous.windows"
            )

    def _checked(self, position: int, sample: object, label: object) -> tuple[Array, int]:
        where = f"client {self._client}: its stream's sample {position}"
        x, wanted = np.asarray(sample), self._like.train.x
        if x.shape != self._like.shape or x.dtype != wanted.dtype:
            raise RunError(f"{where} is {x.dtype} {x.shape}, allowed: {wanted.dtype} {self._like.shape}, as the tests'")
        number = int(np.asarray(label))
        if not 0 <= number < self._like.classes:
            raise RunError(f"{where} has the label {number}, allowed: 0 to {self._like.classes - 1}")
        return x, number
