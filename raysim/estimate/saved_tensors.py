"""What autograd keeps for backward passes, as the most bytes at a time."""

from collections import Counter
from contextlib import AbstractContextManager

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


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


class _Saved:
    """One tensor that a graph keeps."""

    def __init__(self, counts: SavedTensors, tensor: Tensor) -> None:
        self.tensor = tensor
        self._counts = counts
        counts.change(tensor, 1)

    def __del__(self) -> None:
        self._counts.change(self.tensor, -1)
