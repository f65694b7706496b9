"""What benchmarks/kills.py kills, when it does, and what it does about a run that hangs."""

from __future__ import annotations

import faulthandler
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
from clusters import cluster

from raysim.engine.events import Event, RoundDone, Started

Kill = Callable[[], bool]
Replace = Callable[[], object]
LIMIT = 300  # seconds of a run, kills included; a hang is one after that
TIDY = 60  # seconds that a run which hangs has to end in good order


class Killer:
    """Looks on as a run's display and kills at drawn moments, each after the run has gone on after the kill before.

    A moment is up to `spread` rounds later, and as much as two rounds' time after that.

    Args:
        kill: kills something, and says whether there was something.
        replace: called where a loss was told.
        kills: how many.
        last: the last round after which something is killed; the run must not end before it is hit.
        spread: in rounds.
        draws: what moments are drawn from.

    `done` kills were made; `pauses` are the seconds from a kill to the first round after it was told.
    """

    def __init__(self, kill: Kill, replace: Replace, kills: int, last: int, spread: int, draws: random.Random) -> None:
        self.done = 0
        self.pauses: list[float] = []
        self._kill, self._replace, self._kills, self._draws = kill, replace, kills, draws
        self._last, self._spread = last, spread
        self._wait: int | None = draws.randint(0, spread)  # rounds; None: until the last kill was told
        self._timer: threading.Timer | None = None
        self._killed = 0.0
        self._told = False

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone) and self._told:
            self._told = False
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

    def say(self, text: str) -> None:
        if "going on from round" in text:
            self._replace()  # here, as only a process's main thread can start nodes
            self._told = True

    def over(self) -> None:
        """Kill nothing more: the run has ended."""
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
    """Return what kills one of this process's actors of a class."""

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


@contextmanager
def nodes(draws: random.Random) -> Iterator[tuple[str, Kill, Replace]]:
    """Give a cluster of three nodes: its address, what kills one that is not the driver's, and what replaces it."""
    with cluster(0) as there:
        others = [there.add(2) for _ in range(2)]
        one_at_a_time = threading.Lock()

        def kill() -> bool:
            with one_at_a_time:
                if len(others) < 2:
                    return False
                there.lose(others.pop(draws.randrange(2)))
                return True

        def replace() -> None:
            with one_at_a_time:
                while len(others) < 2:
                    others.append(there.add(2))

        yield there.address, kill, replace


@contextmanager
def at_most(what: str, seconds: float = LIMIT) -> Iterator[None]:
    """End the program if what is done meanwhile takes longer: in good order, or a minute later at once."""
    over = []

    def end(signum: int, frame: object) -> None:
        over.append(what)
        raise KeyboardInterrupt  # which Ray's calls let through, as no other exception

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + TIDY, exit=True)  # holds until the next call, or the program's end
    try:
        yield
    except KeyboardInterrupt:
        if over:
            raise SystemExit(f"{what}: not over after {seconds:.0f} s") from None
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
