"""Memory use of a run: the PSS of all its processes on this machine, sampled once a second."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from raysim.system.processes import find_children

INTERVAL = 1.0  # seconds between two samples
TOLERANCE = 0.02
SHARE = 0.2
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Peak:
    """The peak memory use, in bytes, of one process on a machine."""

    machine: str
    pid: int
    nbytes: int


def own_peak() -> Peak:
    """Return this process's peak: the current PSS plus the difference between peak and current resident memory."""
    now = resident = 0
    with suppress(psutil.Error, OSError):  # the system does not provide it
        process = psutil.Process()
        now = resident = process.memory_info().rss
        now = _pss(process)
    return Peak(socket.gethostname(), os.getpid(), now + max(0, _highest() - resident))


class Footprint:
    """Samples the memory use of this process and all its descendants (including Ray and the actors) in a thread.

    PSS counts a page shared by n processes as 1/n in each, so the sum counts it once. Without PSS, the unshared memory
    (USS) is summed.

    The kernel takes about 8 ms to compute the PSS of a process that has imported torch (10 actors: a tenth of a core).
    So a PSS is computed again only if the resident memory has changed by more than TOLERANCE, or if a process has
    started or ended. With hundreds of actors, samples become rarer: the thread uses at most SHARE of a core.
    """

    def __init__(self) -> None:
        self._here = self._elsewhere = self._before = 0
        self._counted: dict[int, tuple[int, int]] = {}  # by process id: resident memory and PSS at the last count
        self._present: set[int] = set()
        self._seen: set[int] = set()  # all processes so far
        self._one_at_a_time = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="raysim-footprint", daemon=True)

    def __enter__(self) -> Footprint:
        with suppress(RuntimeError):  # there is no room for a thread; the samples at the start and end remain
            self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.sample()
        self._over.set()
        if self.is_sampling:
            self._thread.join()

    @property
    def is_sampling(self) -> bool:
        """Whether it samples this process now; otherwise another process reports by `reach`."""
        return self._thread.is_alive()

    @property
    def peak_bytes(self) -> int:
        """The peak memory use of all processes together, in bytes."""
        return max(self._here + self._elsewhere, self._before)

    def reach(self, nbytes: int) -> None:
        """Include a peak from before a resume, or of another process."""
        self._before = max(self._before, nbytes)

    def add(self, peaks: Sequence[Peak]) -> None:
        """Count processes that are not descendants of this one, as in a joined cluster.

        Without any peaks no sample is taken: in a sweep, only the peaks passed to `reach` count.
        """
        if not peaks:
            return
        self.sample()  # descendants may have started since the last sample
        this_machine = socket.gethostname()
        others = [peak.nbytes for peak in peaks if peak.machine != this_machine or peak.pid not in self._seen]
        self._elsewhere = max(self._elsewhere, sum(others))

    def sample(self) -> None:
        """Take one sample now. A failed one is none: a measurement for the summary ends no run."""
        with self._one_at_a_time, suppress(psutil.Error, OSError):
            processes = [psutil.Process(), *find_children(recursive=True)]
            present = {process.pid for process in processes}
            if present != self._present:
                self._present, self._counted = present, {}
                self._seen |= present
            self._here = max(self._here, sum(self._memory(process) for process in processes))

    def _sample_until_over(self) -> None:
        wait = INTERVAL
        while not self._over.wait(wait):
            before = time.perf_counter()
            self.sample()
            wait = max(INTERVAL, (time.perf_counter() - before) / SHARE)

    def _memory(self, process: psutil.Process) -> int:
        with suppress(psutil.Error, OSError):  # the process ended meanwhile, or the system does not show it
            resident = process.memory_info().rss
            counted_at, pss = self._counted.get(process.pid, (0, 0))
            if abs(resident - counted_at) <= TOLERANCE * counted_at:
                return pss
            pss = _pss(process)
            self._counted[process.pid] = resident, pss
            return pss
        return 0


def _pss(process: psutil.Process) -> int:
    memory = process.memory_full_info()
    return int(getattr(memory, "pss", memory.uss))


def _highest() -> int:
    """Return the peak resident memory of this process, in bytes; 0 if the system does not report it."""
    with suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
