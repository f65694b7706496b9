"""Killing processes of a run at random moments, and a time limit for runs that do not end; for benchmarks/kills.py."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psutil
from clusters import cluster

from raysim.engine.events import Event, RolledBack, RoundDone, Started
from raysim.launch.display import RunDisplay

Kill = Callable[[], bool]
Replace = Callable[[], object]
Strike = Callable[[int], bool]
LIMIT = 300  # seconds that a run may take, kills included
TIDY = 60  # seconds that a run over its limit has to clean up


class Killer(RunDisplay):
    """A run's display that kills processes at random moments, each time after the run has recovered from the last kill.

    It waits for up to `spread` rounds, and then for up to the duration of two rounds.

    Args:
        kill: kills a process, and returns whether there was one to kill.
        replace: called when the run reports an interruption.
        kills: number of kills.
        last: the last round after which a kill may start, so that the run does not end before it.
        spread: largest number of rounds to wait.
        draws: random source of the moments.

    `done` is the number of kills so far; `pauses` are the seconds from each kill to the next completed round.
    """

    def __init__(self, kill: Kill, replace: Replace, kills: int, last: int, spread: int, draws: random.Random) -> None:
        self.done = 0
        self.pauses: list[float] = []
        self._kill, self._replace, self._kills, self._draws = kill, replace, kills, draws
        self._last, self._spread = last, spread
        self._wait: int | None = draws.randint(0, spread)  # rounds to wait; None until the last kill was reported
        self._timer: threading.Timer | None = None
        self._killed = 0.0
        self._reported = False

    def take(self, event: Event) -> None:
        if isinstance(event, RolledBack):
            self._replace()  # here, as only the main thread can start nodes
            self._reported = True
        if isinstance(event, RoundDone) and self._reported:
            self._reported = False
            self.pauses.append(time.perf_counter() - self._killed)
            self._wait = self._draws.randint(0, self._spread)
        if not isinstance(event, RoundDone | Started) or self._wait is None or self.done == self._kills:
            return
        if self._wait:
            self._wait -= 1
        elif isinstance(event, Started) or event.round <= self._last:
            self._wait = None
            seconds = event.seconds if isinstance(event, RoundDone) else 0.02
            self._timer = threading.Timer(self._draws.uniform(0, 2 * seconds), self._strike)
            self._timer.start()

    def over(self) -> None:
        """Stop killing: the run has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _strike(self) -> None:
        self._killed = time.perf_counter()
        if self._kill():
            self.done += 1
        else:
            self._wait = 0


def actor(name: str, draws: random.Random) -> Kill:
    """Return a function that kills one of this process's actors of the given class."""

    def kill() -> bool:
        found = []
        for process in psutil.Process().children(recursive=True):
            try:
                if process.name().startswith(f"ray::{name}"):
                    found.append(process)
            except psutil.Error:
                continue
        if not found:
            return False
        draws.choice(sorted(found, key=lambda process: process.pid)).kill()
        return True

    return kill


def child(name: str) -> Strike:
    """Return a function that kills one of Ray's processes below a driver, known by how its name begins."""

    def strike(driver: int) -> bool:
        for process in psutil.Process(driver).children(recursive=True):
            with suppress(psutil.Error):
                if process.name().startswith(name):
                    process.kill()
                    return True
        return False

    return strike


def end_driver(driver: int) -> bool:
    os.kill(driver, signal.SIGKILL)
    return True


def terminate(driver: int) -> bool:
    """End a run as `timeout` does: by a signal to its process group, which Ray's processes are of too."""
    os.killpg(driver, signal.SIGTERM)
    return True


STRIKES: dict[str, Strike] = {
    "driver": end_driver,
    "local": end_driver,
    "raylet": child("raylet"),
    "gcs": child("gcs_server"),
    "agent": child("ray::RuntimeEnv"),
    "terminated": terminate,
}


@contextmanager
def nodes(draws: random.Random) -> Iterator[tuple[str, Kill, Replace]]:
    """Start a cluster of three nodes; yield its address and functions that kill and replace a node that has hosts."""
    with cluster(0) as there:
        others = [there.add(2) for _ in range(2)]
        one_at_a_time = threading.Lock()

        def kill() -> bool:
            with one_at_a_time:
                mine = [node for node in others if node.node_id in there.with_hosts()]
                if len(others) < 2 or not mine:
                    return False
                lost = draws.choice(mine)
                others.remove(lost)
                there.lose(lost)
                return True

        def replace() -> None:
            with one_at_a_time:
                while len(others) < 2:
                    others.append(there.add(2))

        yield there.address, kill, replace


@contextmanager
def at_most(what: str, seconds: float = LIMIT) -> Iterator[None]:
    """End the program if the block takes longer: by KeyboardInterrupt first, and after another minute at once."""
    over = []

    def end(signum: int, frame: object) -> None:
        over.append(what)
        raise KeyboardInterrupt  # the only exception that Ray's calls pass on

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + TIDY, exit=True)  # until the next call, or the program's end
    try:
        yield
    except KeyboardInterrupt:
        if over:
            raise SystemExit(f"{what}: not over after {seconds:.0f} s") from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
