"""Timing of rounds, the same for all frameworks; imports neither raysim nor torch nor Ray."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field

import psutil

WARM_UP = 2  # rounds that are not timed
NICENESS = 15  # that of Ray's workers, also given to bare processes, so that other programs slow both equally


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the argument that says how raysim's actors start."""
    kinds = ("auto", "forked", "spawned")
    parser.add_argument("--workers", choices=kinds, default="auto", help="resources.workers of raysim's runs (auto)")


@dataclass
class Clock:
    """Seconds of each round after the warm-up, and the mean CPU seconds per round of all processes of the run.

    A round ends when the process that owns the clock has its result.
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
    """Return the CPU seconds of this process and all of its running descendants."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)
