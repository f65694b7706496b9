"""What autograd keeps for backward passes, as the most bytes at a time."""

from collections import Counter
from contextlib import AbstractContextManager, suppress

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from raysim.models.flat import FlatModel


class SavedTensors:
    """Counts the storages that forward passes in its contexts keep, each once, until their graphs are gone.

    Attributes:
        peak: the most bytes of them at a time.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._bytes = 0
        self._users: Counter[int] = Counter()  # storage -> the tensors that are kept of it

    def noted(self) -> AbstractContextManager[object]:
        """Return a context in which what autograd keeps is counted. torch.func's transforms refuse to work in it."""
        return saved_tensors_hooks(lambda tensor: _Saved(self, tensor.detach()), lambda saved: saved.tensor)

    def change(self, tensor: Tensor, users: int) -> None:
        """Count one more, or one less, that keeps this tensor's storage."""
        storage = tensor.untyped_storage()
        before = self._users[storage.data_ptr()]
        self._users[storage.data_ptr()] = before + users
        if 0 in (before, before + users):
            self._bytes += users * storage.nbytes()
            self.peak = max(self.peak, self._bytes)


def measure_saved(model: FlatModel, x: Tensor) -> int | None:
    """Return the bytes per sample that a pass keeps for its backward pass; x is [n, ...]. The model stays as it is.

    None: the model uses torch.func, and nothing can be measured.
    """
    peaks = []
    with torch.random.fork_rng(devices=[]), suppress(RuntimeError):
        for rows in (x, torch.cat([x, x])):
            saved = SavedTensors()
            with saved.noted():
                model(rows)
            peaks.append(saved.peak)
    return (peaks[1] - peaks[0]) // len(x) if len(peaks) == 2 else None


class _Saved:
    """One tensor that a graph keeps."""

    def __init__(self, counts: SavedTensors, tensor: Tensor) -> None:
        self.tensor = tensor
        self._counts = counts
        counts.change(tensor, 1)

    def __del__(self) -> None:
        self._counts.change(self.tensor, -1)
