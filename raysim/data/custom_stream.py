"""A client's samples from a custom stream: an iterator that can be opened at any position."""

from collections.abc import Callable, Iterable, Iterator
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
"""stream(client, start) yields a client's samples (x, y) from position `start` on, the same at every call."""


class CustomStream(Source):
    """The Source of one client's custom stream. It holds only the samples of the window and of the memory.

    Args:
        opener: opens the stream. No task transforms its samples.
        client: the client's number.
        like: the dataset that fixes the samples' shape, dtype and classes.
        options: further arguments of Source.
    """

    def __init__(self, opener: Opener, client: int, like: Dataset, **options: Any) -> None:
        self._open = opener
        self._client = client
        self._like = like
        self._positions = np.array([-1])  # a placeholder at no position, as a split is never empty
        self._split = Split(like.train.x[:1], like.train.y[:1])  # on the CPU: `_hold` copies from it
        super().__init__(self._split, [None], **options)

    def hold(self, positions: Tensor) -> None:
        """Hold the samples at these positions (int64), and drop all others.

        Raises:
            RunError: the stream ends too early.
            WrongResult: the stream is no iterator, or a sample differs from the dataset's in shape, dtype or range.
        """
        self._hold(np.unique(positions.numpy()))

    def held(self, positions: Tensor) -> Tensor:
        """Return the rows of these positions (int64 [B], on the CPU). They are valid until the next `hold`.

        Positions that are not held (as with Joint) are read again and appended.

        Raises:
            RunError: see `hold`.
        """
        requested = positions.numpy()
        missing = np.setdiff1d(requested, self._positions)
        if len(missing):
            self._hold(np.concatenate([self._positions, missing]))
        return torch.from_numpy(self._places(requested))

    def _hold(self, positions: Array) -> None:
        """Hold the samples at these positions, in this order."""
        is_held = np.isin(positions, self._positions)
        rows = self._places(positions[is_held])
        x = np.empty((len(positions), *self._like.shape), self._like.train.x.dtype)
        y = np.empty((len(positions), *self._like.train.y.shape[1:]), self._like.train.y.dtype)
        x[is_held], y[is_held] = self._split.x[rows], self._split.y[rows]
        missing = np.flatnonzero(~is_held)
        for part in np.split(missing, np.flatnonzero(np.diff(positions[missing]) != 1) + 1):
            for row, (sample, target) in zip(part, self._read(positions[part]), strict=True):
                x[row], y[row] = sample, target
        self._positions, self._split = positions, Split(x, y)
        self.take(self._split)

    def _places(self, positions: Array) -> Array:
        """Return the rows of positions that are held."""
        order = np.argsort(self._positions)
        return order[np.searchsorted(self._positions, positions, sorter=order)]

    def _read(self, positions: Array) -> Iterator[tuple[Array, Array]]:
        """Yield the samples at consecutive positions."""
        if not len(positions):
            return
        start, count = int(positions[0]), 0
        pairs = self._open(self._client, start)
        if not isinstance(pairs, Iterable):
            found = f"{place_of(self._open)} returned {type(pairs).__name__} for client {self._client}"
            raise WrongResult(f"stream: {found}, allowed: an iterator over pairs (x, y); yield them")
        for pair in islice(pairs, len(positions)):
            yield self._check(start + count, pair)
            count += 1
        if count < len(positions):
            raise RunError(
                f"client {self._client}: its stream ended at position {start + count}, but {start + len(positions)} "
                "samples are asked for; lower scenario.boundaries.asynchronous.windows"
            )

    def _check(self, position: int, pair: object) -> tuple[Array, Array]:
        where = f"stream: {place_of(self._open)} yielded, as sample {position} of client {self._client},"
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise WrongResult(f"{where} {type(pair).__name__}, allowed: a pair (x, y)")
        x, y, like_x, like_y = np.asarray(pair[0]), np.asarray(pair[1]), self._like.train.x, self._like.train.y
        if x.shape != self._like.shape or x.dtype != like_x.dtype:
            shape = f"{like_x.dtype} {self._like.shape}"
            raise WrongResult(f"{where} {x.dtype} {x.shape}, allowed: {shape}, as the tests'")
        if self._like.vocabulary is not None and not 0 <= x.min() <= x.max() < self._like.vocabulary:
            ids = f"allowed: ids from 0 to {self._like.vocabulary - 1}"
            raise WrongResult(f"{where} ids from {x.min()} to {x.max()}, {ids}")
        if not np.isfinite(x).all():
            raise WrongResult(f"{where} NaN or infinite values, allowed: finite ones")
        if like_y.dtype == np.int64 and like_y.ndim == 1:
            if y.shape != () or y.dtype.kind not in "biu" or not 0 <= y < self._like.classes:
                raise WrongResult(f"{where} the label {pair[1]!r:.60}, allowed: 0 to {self._like.classes - 1}")
        elif y.shape != like_y.shape[1:] or (like_y.dtype == np.int64 and y.dtype.kind not in "biu"):
            raise WrongResult(f"{where} a target of {y.dtype} {y.shape}, allowed: {like_y.dtype} {like_y.shape[1:]}")
        elif like_y.dtype == np.int64 and not 0 <= y.min() <= y.max() < self._like.classes:
            values = f"targets from {y.min()} to {y.max()}"
            raise WrongResult(f"{where} {values}, allowed: 0 to {self._like.classes - 1}")
        return x, y.astype(like_y.dtype)
