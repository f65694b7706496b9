"""Availability and data window of every client, by round, all known before the run starts."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysim.config import Config
from raysim.config.experiment import MOST_ROUNDS
from raysim.config.timing import Moment
from raysim.federation.stream import Stream
from raysim.system import seeding
from raysim.system.errors import ConfigError

ALWAYS = 2**62  # a round that no run reaches


@dataclass(frozen=True)
class Progress:
    """How far a run is in a round: `round` (from 1) of `rounds`, in `task` (from 0).

    The task began after the round `began` and has `lasts` rounds. Where nobody is told the task, the run is one.
    """

    round: int
    rounds: int
    task: int
    began: int
    lasts: int


@dataclass(frozen=True)
class Attendance:
    """One client's times, in rounds from 1: the round in which each window of its stream begins, and its departure."""

    begins: Sequence[int]
    gone: int = ALWAYS

    def window(self, round: int) -> int | None:
        """Return the window that the client has in a round, or None if it is absent."""
        window = bisect_right(self.begins, round) - 1
        return None if window < 0 or round >= self.gone else window


class Availability:
    """The times of all clients, and of the evaluations.

    `rounds` is the run's number of server updates; `rows[t]` the round after which row t of the accuracy matrix is
    evaluated; under asynchronous boundaries, which have no common task, the rows divide the run into equal parts.
    """

    def __init__(self, streams: Sequence[Stream], attendance: Sequence[Attendance], rows: Sequence[int]) -> None:
        self._streams = streams
        self._attendance = attendance
        self.rows = tuple(rows)
        self._present: tuple[int, tuple[int, ...]] = (0, ())
        self._changes: list[int] = []

    @property
    def rounds(self) -> int:
        """The run's number of rounds."""
        return self.rows[-1]

    def window(self, client: int, round: int) -> int | None:
        """Return the window that a client has in a round, or None if it is absent or has no data."""
        window = self._attendance[client].window(round)
        return window if window is not None and self._streams[client].size(window) else None

    def size(self, client: int, round: int) -> int:
        """Return how many samples a client has in a round."""
        window = self.window(client, round)
        return 0 if window is None else self._streams[client].size(window)

    def present(self, round: int) -> tuple[int, ...]:
        """Return the clients that have data in a round, ascending."""
        self._changes = self._changes or self._find_changes()
        since = self._changes[bisect_right(self._changes, round) - 1]
        if self._present[0] != since:
            there = (k for k in range(len(self._streams)) if self.window(k, since) is not None)
            self._present = since, tuple(there)
        return self._present[1]

    def _find_changes(self) -> list[int]:
        """Return the rounds at which clients may come or go, ascending: between two of them the same are present."""
        found = {1}
        for stream, there in zip(self._streams, self._attendance, strict=True):
            present = False
            for window, begin in enumerate(there.begins):
                if present != (present := stream.size(window) > 0):
                    found.add(begin)
            found.add(there.gone)
        return sorted(found)

    def row(self, round: int) -> int:
        """Return a round's row of the accuracy matrix, from 0; it is its task, if all clients have the same one."""
        return bisect_right(self.rows, round - 1)

    def progress(self, round: int, told: bool = True) -> Progress:
        """Return how far the run is in a round; `told` says whether anybody knows the task."""
        if not told:
            return Progress(round, self.rounds, 0, 0, self.rounds)
        task = min(self.row(round), len(self.rows) - 1)
        began = self.rows[task - 1] if task else 0
        return Progress(round, self.rounds, task, began, self.rows[task] - began)

    def tasks(self, client: int, round: int) -> list[int]:
        """Return the tasks of the samples that a client has in a round, ascending; none if it is absent."""
        window = self.window(client, round)
        return [] if window is None else self._streams[client].tasks_in(window, window + 1)

    def timeline(self) -> npt.NDArray[np.int64]:
        """Return the task of every client by round: int64 [clients, rounds], -1 where a client is absent.

        For a window with samples of several tasks it is the task with most of them.
        """
        found = np.full((len(self._streams), self.rounds), -1)
        for client, stream in enumerate(self._streams):
            windows = [self.window(client, round) for round in range(1, self.rounds + 1)]
            counts = {window: stream.counts_in(window, window + 1) for window in set(windows) if window is not None}
            most = {window: max(of, key=of.__getitem__) for window, of in counts.items()}
            found[client] = [-1 if window is None else most[window] for window in windows]
        return found


def arrivals(config: Config) -> list[int]:
    """Return the round, from 1, from which on each client is present."""
    clients, rounds = config.clients, config.training.rounds_per_task or 0
    if clients.arrive is None:
        return [1] * clients.count
    first, per_task = clients.arrive.first, clients.arrive.per_task
    if first is not None and per_task is not None:
        return [1 + rounds * max(0, math.ceil((k + 1 - first) / per_task)) for k in range(clients.count)]
    return _moments(clients.arrive.at or (), clients.count, 1)


def departures(config: Config) -> list[int]:
    """Return the round from which on each client has left."""
    return _moments(config.clients.leave, config.clients.count, ALWAYS)


def _moments(moments: Sequence[Moment], clients: int, otherwise: int) -> list[int]:
    """Return every client's round; if a client has two, the later one in the list counts."""
    rounds = {client: moment.round for moment in moments for client in moment.clients}
    return [rounds.get(client, otherwise) for client in range(clients)]


def plan_availability(config: Config, streams: Sequence[Stream]) -> Availability:
    """Plan the availability that a config describes.

    Raises:
        ConfigError: the run would have too many rounds.
    """
    windows, tasks = config.scenario.windows, config.scenario.tasks
    attendance = list(_attend(config, streams))
    if windows is None:
        rounds = config.training.rounds_per_task
        assert rounds is not None
        return Availability(streams, attendance, [t * rounds for t in range(1, tasks + 1)])
    last = max(max(there.begins[-1] for there in attendance) + windows.rounds_per_window - 1, tasks)
    if last > MOST_ROUNDS:
        raise ConfigError(
            f"scenario.boundaries.asynchronous.rounds_per_window: found {windows.rounds_per_window}, with "
            f"which the run has {last} rounds, allowed: at most {MOST_ROUNDS}; lower it, or clients.arrive's rounds"
        )
    return Availability(streams, attendance, [math.ceil(t * last / tasks) for t in range(1, tasks + 1)])


def _attend(config: Config, streams: Sequence[Stream]) -> Iterator[Attendance]:
    """Yield every client's times; nothing begins before its arrival."""
    windows = config.scenario.windows
    for client, (stream, arrival, gone) in enumerate(zip(streams, arrivals(config), departures(config), strict=True)):
        if windows is None:
            yield Attendance([max(begin, arrival) for begin in _boundaries(config, client)], gone)
        else:
            each = windows.rounds_per_window
            begins = [arrival + each * window for window in range(stream.windows)]
            exhausted = begins[-1] + each if windows.on_exhausted == "drop" else ALWAYS
            yield Attendance(begins, min(gone, exhausted))


def _boundaries(config: Config, client: int) -> list[int]:
    """Return the rounds at which windows begin, all but the first shifted by up to jitter rounds, drawn uniformly."""
    rounds, most = config.training.rounds_per_task or 0, config.scenario.jitter
    each = rounds if config.scenario.online else 1
    usual = [1 + task * rounds + part for task in range(config.scenario.tasks) for part in range(each)]
    if not most:
        return usual
    draws = seeding.generator(config.seed, "boundaries", client)
    return [usual[0], *(begin + int(draws.integers(-most, most + 1)) for begin in usual[1:])]
