"""How much memory a run takes: the PSS of all its processes, sampled once a second while it runs."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType

import psutil


class Footprint:
    """Samples this process and all its descendants (Ray's and the actors' among them) in a thread.

    PSS counts a page shared by n processes as 1/n in each, so the sum counts it once. Where the system has no PSS, the
    unshared memory (USS) is summed.
    """

    def __init__(self, interval: float = 1.0) -> None:
        self.peak_bytes = 0
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="raysim-footprint", daemon=True)

    def __enter__(self) -> Footprint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sample()
        self._over.set()
        self._thread.join()

    def sample(self) -> None:
        """Take one sample now."""
        me = psutil.Process()
        self.peak_bytes = max(self.peak_bytes, sum(_memory(p) for p in (me, *me.children(recursive=True))))

    def _sample_until_over(self) -> None:
        while not self._over.wait(self._interval):
            self.sample()


def _memory(process: psutil.Process) -> int:
    with suppress(psutil.Error):  # it ended meanwhile
        memory = process.memory_full_info()
        return int(getattr(memory, "pss", memory.uss))
    return 0
