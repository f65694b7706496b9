"""The seconds that a run spends in hooks, in passes through the model, and in all other parts of a round."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

NOTHING = nullcontext()


class Profile:
    """The seconds of each part of a run, without the seconds of the parts inside it.

    Args:
        on: whether seconds are measured; otherwise a part costs nothing.
        device: the device of the model. At its end, a part waits for the GPU work that it started. The work then counts
            for this part, but the run is slower.
        clock: returns the current seconds; None is a wall clock.
    """

    def __init__(self, on: bool, device: torch.device, clock: Callable[[], float] | None = None) -> None:
        self.on = on
        self._clock = clock or time.perf_counter
        self._device = device
        self._seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []  # for each open part: the seconds of the parts inside it

    def part(self, name: str) -> AbstractContextManager[None]:
        """Return a context. Time in the context counts for this part."""
        return self._timed(name) if self.on else NOTHING

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds that another process measured."""
        for name, spent in seconds.items():
            self._seconds[name] += spent

    def take(self) -> dict[str, float]:
        """Return the seconds since the last call, by part."""
        taken, self._seconds = self._seconds, defaultdict(float)
        return dict(taken)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = self._clock()
        self._inside.append(0.0)
        try:
            yield
        finally:
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
            spent = self._clock() - began
            self._seconds[name] += spent - self._inside.pop()
            if self._inside:
                self._inside[-1] += spent
