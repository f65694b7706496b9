"""Taking the time of rounds, alike for everyone: torch and Ray are not needed here, nor is raysim."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import psutil

WARM_UP = 2  # rounds that are not counted
NICENESS = 15  # Ray's workers have it; bare processes get it too, so that other programs slow both alike


@dataclass
class Clock:
    """Takes the time between the rounds that count, and the CPU seconds of all processes of the run in all of them.

    A round ends when the process that counts the rounds has its result.
    """

    rounds: int
    last: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0
    done: int = 0

    def round_done(self) -> None:
        now = time.perf_counter()
        self.done += 1
        if self.done == WARM_UP:
            self.cpu = -cpu_seconds()
        elif WARM_UP < self.done <= WARM_UP + self.rounds:
            self.seconds.append(now - self.last)
            if self.done == WARM_UP + self.rounds:
                self.cpu = (self.cpu + cpu_seconds()) / self.rounds
        self.last = time.perf_counter()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all that it started and that still run."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)
