"""The server's loops in a rehearsal: a step or two of each are carried out, and the seconds of the others follow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

LONG = 5.0  # seconds; a first step that takes as long is not repeated to be timed without what happens once


class ServerLoops:
    """Replaces the loops and the batches of a server half. Set an object as the server's `pacer`.

    Two steps of a loop are carried out, as the first one pays for what happens once, such as imports. The steps that
    are not carried out count as the last one that is. In nested loops this holds for each loop: the seconds that inner
    loops add are seconds of the outer loop's step. Where only bytes are wanted, one step is carried out, on few rows.

    Args:
        clock: returns the current seconds.
        few: the most rows of a step's batch; None leaves them as they are, to be timed.

    Attributes:
        seconds: those of all steps that were not carried out.
        peak: the most bytes that torch has kept for the backward passes of an innermost step.
        asked: the most rows that a method asked for in a step.
    """

    def __init__(self, clock: Callable[[], float], few: int | None = None) -> None:
        self.seconds = 0.0
        self.peak = 0
        self.asked = 0
        self._clock, self._few, self._inside = clock, few, 0
        self._kept: dict[int, int] = {}  # storage -> bytes, of the step in progress

    def __call__(self, count: int) -> Iterator[int]:
        """Yield the first indices of a loop."""
        done, last = 0, 0.0
        while done < min(count, 2 if self._few is None and last < LONG else 1):
            self._kept.clear()
            began, added = self._clock(), self.seconds
            with saved_tensors_hooks(self._note, lambda tensor: tensor), self._step():
                yield done
            last = self._clock() - began + self.seconds - added
            self.peak = max(self.peak, sum(self._kept.values()))
            done += 1
        self.seconds += last * (count - done)

    def rows(self, count: int) -> int:
        """Return how many of this many samples are made."""
        if self._inside:
            self.asked = max(self.asked, count)
        return count if self._few is None else min(count, self._few)

    def take(self) -> float:
        """Return the seconds since the last call."""
        taken, self.seconds = self.seconds, 0.0
        return taken

    @contextmanager
    def _step(self) -> Iterator[None]:
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    def _note(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()
