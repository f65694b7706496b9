"""A client's samples from a stream of the user's own: an iterator that can be opened at any position."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raysim.data.dataset import Array, Dataset, Split
from raysim.data.pixels import Source
from raysim.system.custom_code import place_of
from raysim.system.errors import RunError, WrongResult

Opener = Callable[[int, int], Iterator[tuple[Array, Any]]]
"""stream(client, start) yields a client's samples (x, y) from position `start` on, the same ones each time."""


class UserStream(Source):
    """The Source of one client's stream: it holds the samples of the window and of the memory, and no others.

    Args:
        opener: the user's stream. No task transforms its samples.
        client: the client's number.
        like: the data set whose shape, dtype and classes these samples must have.
        options: Source's.
    """

    def __init__(self, opener: Opener, client: int, like: Dataset, **options: Any) -> None:
        self._open = opener
        self._client = client
        self._like = like
        self._positions = np.array([-1])  # nothing yet: one sample at no position, so that the split is not empty
        self._split = Split(like.train.x[:1], like.train.y[:1])  # on the CPU, from which `_hold` copies
        super().__init__(self._split, [None], **options)

    def hold(self, positions: Tensor) -> None:
        """Hold the samples at these positions (int64), in place of those held before.

        Raises:
            RunError: the stream ends before them, or its samples are not like the data set's.
        """
        self._hold(np.unique(positions.numpy()))

    def held(self, positions: Tensor) -> Tensor:
        """Return the rows of these positions (int64 [B], on the CPU), which are valid until `hold` is called again.

        Positions that are not held (Joint's, say) are read again and added behind those that are.

        Raises:
            RunError: see `hold`.
        """
        wanted = positions.numpy()
        missing = np.setdiff1d(wanted, self._positions)
        if len(missing):
            self._hold(np.concatenate([self._positions, missing]))
        return torch.from_numpy(self._places(wanted))

    def _hold(self, wanted: Array) -> None:
        """Hold the samples at these positions, in this order."""
        kept = np.isin(wanted, self._positions)
        rows = self._places(wanted[kept])
        x = np.empty((len(wanted), *self._like.shape), self._like.train.x.dtype)
        y = np.empty((len(wanted), *self._like.train.y.shape[1:]), self._like.train.y.dtype)
        x[kept], y[kept] = self._split.x[rows], self._split.y[rows]
        missing = np.flatnonzero(~kept)
        for part in np.split(missing, np.flatnonzero(np.diff(wanted[missing]) != 1) + 1):
            for row, (sample, target) in zip(part, self._read(wanted[part]), strict=True):
                x[row], y[row] = sample, target
        self._positions, self._split = wanted, Split(x, y)
        self.take(self._split)

    def _places(self, positions: Array) -> Array:
        """Return the rows of positions that are held."""
        order = np.argsort(self._positions)
        return order[np.searchsorted(self._positions, positions, sorter=order)]

    def _read(self, positions: Array) -> Iterator[tuple[Array, Array]]:
        """Read consecutive positions."""
        if not len(positions):
            return
        start, found = int(positions[0]), 0
        for pair in islice(self._open(self._client, start), len(positions)):
            yield self._check(start + found, pair)
            found += 1
        if found < len(positions):
            raise RunError(
                f"client {self._client}: its stream ended at position {start + found}, but {start + len(positions)} "
                "samples are asked for; lower scenario.boundaries.asynchronous.windows"
            )

    def _check(self, position: int, pair: object) -> tuple[Array, Array]:
        where = f"stream: {place_of(self._open)} yielded, as sample {position} of client {self._client},"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise WrongResult(f"{where} {type(pair).__name__}, allowed: a pair (x, y)")
        x, y, wanted, like = np.asarray(pair[0]), np.asarray(pair[1]), self._like.train.x, self._like.train.y
        if x.shape != self._like.shape or x.dtype != wanted.dtype:
            shape = f"{wanted.dtype} {self._like.shape}"
            raise WrongResult(f"{where} {x.dtype} {x.shape}, allowed: {shape}, as the tests'")
        if self._like.vocabulary is not None and not 0 <= x.min() <= x.max() < self._like.vocabulary:
            ids = f"allowed: ids from 0 to {self._like.vocabulary - 1}"
            raise WrongResult(f"{where} ids from {x.min()} to {x.max()}, {ids}")
        if not np.isfinite(x).all():
            raise WrongResult(f"{where} NaN or infinite values, allowed: finite ones")
        if like.dtype == np.int64 and like.ndim == 1:
            if y.shape != () or y.dtype.kind not in "biu" or not 0 <= y < self._like.classes:
                raise WrongResult(f"{where} the label {pair[1]!r:.60}, allowed: 0 to {self._like.classes - 1}")
        elif y.shape != like.shape[1:] or (like.dtype == np.int64 and y.dtype.kind not in "biu"):
            raise WrongResult(f"{where} a target of {y.dtype} {y.shape}, allowed: {like.dtype} {like.shape[1:]}")
        elif like.dtype == np.int64 and not 0 <= y.min() <= y.max() < self._like.classes:
            found = f"targets from {y.min()} to {y.max()}"
            raise WrongResult(f"{where} {found}, allowed: 0 to {self._like.classes - 1}")
        return x, y.astype(like.dtype)
