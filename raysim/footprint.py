"""How much memory a run takes: the PSS of all its processes, sampled once a second while it runs."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType

import psutil

TOLERANCE = 0.02


class Footprint:
    """Samples this process and all its descendants (Ray's and the actors' among them) in a thread.

    PSS counts a page shared by n processes as 1/n in each, so the sum counts it once. Where the system has no PSS, the
    unshared memory (USS) is summed. The kernel takes about 8 ms to count the PSS of a process that has imported torch
    (10 actors: a tenth of a core, as measured), so it is asked again only for a process whose resident memory has
    changed by more than TOLERANCE since, and for all where one has come or gone.
    """

    def __init__(self, interval: float = 1.0) -> None:
        self.peak_bytes = 0
        self._interval = interval
        self._counted: dict[int, tuple[int, int]] = {}  # by process id: resident memory and PSS when last counted
        self._present: set[int] = set()
        self._one_at_a_time = threading.Lock()
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
        with self._one_at_a_time:
            me = psutil.Process()
            processes = [me, *me.children(recursive=True)]
            present = {process.pid for process in processes}
            if present != self._present:
                self._present, self._counted = present, {}
            self.peak_bytes = max(self.peak_bytes, sum(self._memory(process) for process in processes))

    def _sample_until_over(self) -> None:
        while not self._over.wait(self._interval):
            self.sample()

    def _memory(self, process: psutil.Process) -> int:
        with suppress(psutil.Error):  # it ended meanwhile
            resident = process.memory_info().rss
            counted_at, known = self._counted.get(process.pid, (0, 0))
            if abs(resident - counted_at) <= TOLERANCE * counted_at:
                return known
            memory = process.memory_full_info()
            known = int(getattr(memory, "pss", memory.uss))
            self._counted[process.pid] = resident, known
            return known
        return 0
