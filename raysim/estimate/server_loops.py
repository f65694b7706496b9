"""The server's loops in a rehearsal: a few steps of each are carried out, and the seconds of the others follow."""

from collections.abc import Callable, Iterator

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

CARRIED_OUT = 2  # the first step pays for what happens once, such as imports; the last one is timed


class ServerLoops:
    """Replaces the loops of `server.steps`. Set an object as the server's `pacer`.

    The steps that are not carried out count as the last one that is. In nested loops this holds for each loop: the
    seconds that inner loops add are seconds of the outer loop's step.

    Args:
        clock: returns the current seconds.

    Attributes:
        seconds: those of all steps that were not carried out.
        peak: the most bytes that torch has kept for the backward passes of an innermost step.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self.peak = 0
        self._clock = clock
        self._kept: dict[int, int] = {}  # storage -> bytes, of the step in progress

    def __call__(self, count: int) -> Iterator[int]:
        """Yield the first indices of a loop."""
        carried_out, last = min(count, CARRIED_OUT), 0.0
        for index in range(carried_out):
            self._kept.clear()
            began, added = self._clock(), self.seconds
            with saved_tensors_hooks(self._note, lambda tensor: tensor):
                yield index
            last = self._clock() - began + self.seconds - added
            self.peak = max(self.peak, sum(self._kept.values()))
        self.seconds += last * (count - carried_out)

    def take(self) -> float:
        """Return the seconds since the last call."""
        taken, self.seconds = self.seconds, 0.0
        return taken

    def _note(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._kept[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()
