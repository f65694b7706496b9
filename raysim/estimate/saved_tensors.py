"""What autograd keeps for backward passes, as the most bytes at a time."""

from collections import Counter
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from raysim.models.flat import FlatModel
from raysim.models.recomputing import recomputed_blocks


class SavedTensors:
    """Counts the storages that forward passes in its contexts keep, each once, until their graphs are gone.

    Attributes:
        bytes: the bytes of them.
        peak: the most bytes at a time.
    """

    def __init__(self) -> None:
        self.peak = 0
        self.bytes = 0
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
            self.bytes += users * storage.nbytes()
            self.peak = max(self.peak, self.bytes)


def measure_saved(model: FlatModel, x: Tensor) -> int | None:
    """Return the most bytes per sample that a step has for its backward pass; x is [n, ...]. The model is unchanged.

    The model is in evaluation mode. None: the model uses torch.func, and nothing can be measured.
    """
    peaks = []
    with torch.random.fork_rng(devices=[]), suppress(RuntimeError):
        peaks = [_peak(model, rows) for rows in (x, torch.cat([x, x]))]
    return (peaks[1] - peaks[0]) // len(x) if len(peaks) == 2 else None


def _peak(model: FlatModel, x: Tensor) -> int:
    """Return the most bytes that a pass and its backward pass keep.

    Blocks that are recomputed (model.checkpointing) keep their inputs, and one of them at a time keeps the rest.
    """
    saved, passes = SavedTensors(), list[_BlockPass]()

    def begin(block: nn.Module, inputs: tuple[object, ...]) -> None:
        passes.append(_BlockPass(saved.bytes, sum(part.nbytes for part in inputs if isinstance(part, Tensor))))

    def end(block: nn.Module, inputs: object, outputs: object) -> None:
        passes[-1].kept = saved.bytes - passes[-1].before

    blocks = recomputed_blocks(model.module)
    hooks = [block.register_forward_pre_hook(begin) for block in blocks]
    hooks += [block.register_forward_hook(end) for block in blocks]
    try:
        with saved.noted():
            model(x)
    finally:
        for hook in hooks:
            hook.remove()
    released = sum(max(0, one.kept - one.inputs) for one in passes)
    return saved.peak - released + max((one.kept for one in passes), default=0)


@dataclass
class _BlockPass:
    """A pass of a block: the bytes kept before it, those of its inputs, and those that it adds."""

    before: int
    inputs: int
    kept: int = 0


class _Saved:
    """One tensor that a graph keeps."""

    def __init__(self, counts: SavedTensors, tensor: Tensor) -> None:
        self.tensor = tensor
        self._counts = counts
        counts.change(tensor, 1)

    def __del__(self) -> None:
        self._counts.change(self.tensor, -1)
