"""The presence and the data window of every client in every round, known before the run starts."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from raysim.config import Config
from raysim.config.experiment import MOST_ROUNDS
from raysim.config.timing import Moment
from raysim.federation.stream import Stream
from raysim.system import seeding
from raysim.system.errors import ConfigError

ALWAYS = 2**62  # a round that no run reaches


@dataclass(frozen=True)
class Progress:
    """The progress of a run in a round. If clients do not know the tasks, the whole run counts as one task."""

    round: int
    """The round, from 1."""
    rounds: int
    """The number of rounds of the run."""
    task: int
    """The task, from 0."""
    began: int
    """The round after which the task began."""
    lasts: int
    """The number of rounds of the task."""

    @property
    def is_first(self) -> bool:
        """Whether the round is its task's first."""
        return self.round == self.began + 1

    @property
    def is_last(self) -> bool:
        """Whether the round is its task's last."""
        return self.round == self.began + self.lasts

    @property
    def is_final(self) -> bool:
        """Whether the round is the run's last."""
        return self.round == self.rounds


@dataclass(frozen=True)
class Attendance:
    """The times of one client, in rounds from 1."""

    begins: Sequence[int]
    """The round in which each window of the client's stream begins."""
    gone: int = ALWAYS
    """The first round after the client's departure."""

    def window(self, round: int) -> int | None:
        """Return the client's window in a round, or None if it is absent."""
        return None if round >= self.gone else self.last_window(round)

    def last_window(self, round: int) -> int | None:
        """Return the client's window in a round or in its last one. None before its arrival."""
        window = bisect_right(self.begins, min(round, self.gone - 1)) - 1
        return None if window < 0 else window


class Availability:
    """The times of all clients, and of the evaluations.

    Attributes:
        rows: the round after which each row of the accuracy matrix is evaluated. Asynchronous boundaries have no common
            task, so their rows divide the run into equal parts.
    """

    def __init__(self, streams: Sequence[Stream], attendance: Sequence[Attendance], rows: Sequence[int]) -> None:
        self._streams = streams
        self._attendance = attendance
        self.rows = tuple(rows)
        self._present: tuple[int, tuple[int, ...]] = (0, ())
        self._changes: list[int] = []
        self._named: dict[
            int, list[tuple[int, Tensor]]
        ] = {}  # client -> (round, positions that it leaves out after it)
        self._left: dict[int, list[Stream]] = {}  # client -> its stream after each of these rounds

    @property
    def rounds(self) -> int:
        """The number of rounds, which are server updates."""
        return self.rows[-1]

    def leaving_out(self, named: Mapping[int, Mapping[int, Tensor]]) -> Availability:
        """Return the availability of clients that leave samples out after a round.

        `named` maps a round to the positions by client. A client without other data in its window is absent.
        """
        later = copy(self)
        later._named, later._left, later._changes = {}, {}, []
        later._present = (0, ())
        for round, of_round in sorted(named.items()):
            for client, positions in of_round.items():
                stream = later._left[client][-1] if client in later._left else self._streams[client]
                later._named.setdefault(client, []).append((round, positions))
                later._left.setdefault(client, []).append(stream.leaving_out(positions))
        return later

    def stream(self, client: int, round: int) -> Stream:
        """Return a client's stream in a round, without the samples that it leaves out since an earlier round."""
        named = self._named.get(client)
        number = bisect_left(named, round, key=lambda each: each[0]) if named else 0
        return self._left[client][number - 1] if number else self._streams[client]

    def outdated_after(self, client: int, round: int) -> int:
        """Return the round after which a client leaves out a sample that it had in `round`; ALWAYS if there is none."""
        window = self.window(client, round)
        if window is None:
            return ALWAYS
        end = self._streams[client].end(window)
        later = (after for after, positions in self._named.get(client, ()) if after >= round and positions[0] < end)
        return next(later, ALWAYS)

    def window(self, client: int, round: int) -> int | None:
        """Return a client's window in a round, or None if it is absent or has no data."""
        window = self._attendance[client].window(round)
        return window if window is not None and self.stream(client, round).size(window) else None

    def size(self, client: int, round: int) -> int:
        """Return how many samples a client has in a round."""
        window = self.window(client, round)
        return 0 if window is None else self.stream(client, round).size(window)

    def received(self, client: int, round: int) -> int:
        """Return the position in a client's stream up to which its data have come by a round, also if it has left."""
        window = self._attendance[client].last_window(round)
        return 0 if window is None else self._streams[client].end(window)

    def sent_at_ends(self, client: int, round: int) -> int:
        """Return the position in a client's stream up to which its data had come at the tasks' ends that it was there.

        Methods in closed form have all samples up to there in their sums. `round` is the last one that counts.
        """
        windows = [self.window(client, end) for end in self.rows if end <= round]
        return max((self._streams[client].end(window) for window in windows if window is not None), default=0)

    def arrived(self, client: int, round: int) -> int:
        """Return how many samples a client has received up to a round, without those that it leaves out."""
        window = self.window(client, round)
        return 0 if window is None else self.stream(client, round).arrived(window)

    def present(self, round: int) -> tuple[int, ...]:
        """Return the clients that have data in a round, ascending."""
        self._changes = self._changes or self._find_changes()
        since = self._changes[bisect_right(self._changes, round) - 1]
        if self._present[0] != since:
            clients = (k for k in range(len(self._streams)) if self.window(k, since) is not None)
            self._present = since, tuple(clients)
        return self._present[1]

    def _find_changes(self) -> list[int]:
        """Return the rounds in which the set of present clients may change, ascending."""
        changes = {1}
        for client, (stream, attendance) in enumerate(zip(self._streams, self._attendance, strict=True)):
            present = False
            if client in self._named:
                changes |= {*attendance.begins, *(round + 1 for round, _ in self._named[client])}
            for window, begin in enumerate(attendance.begins):
                if present != (present := stream.size(window) > 0):
                    changes.add(begin)
            changes.add(attendance.gone)
        return sorted(changes)

    def row(self, round: int) -> int:
        """Return a round's row of the accuracy matrix, from 0. It is the round's task if clients share one."""
        return bisect_right(self.rows, round - 1)

    def progress(self, round: int, tasks_known: bool = True) -> Progress:
        """Return the progress in a round. `tasks_known` says whether clients know the task."""
        if not tasks_known:
            return Progress(round, self.rounds, 0, 0, self.rounds)
        task = min(self.row(round), len(self.rows) - 1)
        began = self.rows[task - 1] if task else 0
        return Progress(round, self.rounds, task, began, self.rows[task] - began)

    def tasks(self, client: int, round: int) -> list[int]:
        """Return the tasks of a client's samples in a round, ascending. An absent client has none."""
        window = self.window(client, round)
        return [] if window is None else self._streams[client].tasks_in(window, window + 1)

    def timeline(self) -> npt.NDArray[np.int64]:
        """Return the task of every client by round: int64 [clients, rounds], -1 if a client is absent.

        A window with samples of several tasks counts as the task with most of them.
        """
        timeline = np.full((len(self._streams), self.rounds), -1)
        for client, stream in enumerate(self._streams):
            windows = [self.window(client, round) for round in range(1, self.rounds + 1)]
            counts = {window: stream.counts_in(window, window + 1) for window in set(windows) if window is not None}
            main_task = {window: max(tasks, key=tasks.__getitem__) for window, tasks in counts.items()}
            timeline[client] = [-1 if window is None else main_task[window] for window in windows]
        return timeline


def arrivals(config: Config) -> list[int]:
    """Return each client's first round, from 1."""
    clients, rounds = config.clients, config.training.rounds_per_task or 0
    if clients.arrive is None:
        return [1] * clients.count
    first, per_task = clients.arrive.first, clients.arrive.per_task
    if first is not None and per_task is not None:
        return [1 + rounds * max(0, math.ceil((k + 1 - first) / per_task)) for k in range(clients.count)]
    return _moments(clients.arrive.at or (), clients.count, 1)


def departures(config: Config) -> list[int]:
    """Return the first round after each client's departure."""
    return _moments(config.clients.leave, config.clients.count, ALWAYS)


def forgotten(config: Config) -> list[int]:
    """Return the first round after each client's request to be forgotten."""
    rounds: dict[int, int] = {}
    for request in config.clients.forget:
        for client in request.clients or ():
            rounds[client] = min(rounds.get(client, ALWAYS), request.round + 1)
    return [rounds.get(client, ALWAYS) for client in range(config.clients.count)]


def _moments(moments: Sequence[Moment], clients: int, otherwise: int) -> list[int]:
    """Return every client's round. The last moment that names a client counts."""
    rounds = {client: moment.round for moment in moments for client in moment.clients}
    return [rounds.get(client, otherwise) for client in range(clients)]


def plan_availability(config: Config, streams: Sequence[Stream]) -> Availability:
    """Return the availability that a config describes.

    Raises:
        ConfigError: the run would have too many rounds.
    """
    windows, tasks = config.scenario.windows, config.scenario.tasks
    attendance = list(_attend(config, streams))
    if windows is None:
        rounds = config.training.rounds_per_task
        assert rounds is not None
        return Availability(streams, attendance, [t * rounds for t in range(1, tasks + 1)])
    last = max(max(times.begins[-1] for times in attendance) + windows.rounds_per_window - 1, tasks)
    if last > MOST_ROUNDS:
        raise ConfigError(
            f"scenario.boundaries.asynchronous.rounds_per_window: found {windows.rounds_per_window}, with "
            f"which the run has {last} rounds, allowed: at most {MOST_ROUNDS}; lower it, or clients.arrive's rounds"
        )
    return Availability(streams, attendance, [math.ceil(t * last / tasks) for t in range(1, tasks + 1)])


def _attend(config: Config, streams: Sequence[Stream]) -> Iterator[Attendance]:
    """Yield every client's times. No window begins before the client's arrival."""
    windows = config.scenario.windows
    for client, (stream, arrival, departure, request) in enumerate(
        zip(streams, arrivals(config), departures(config), forgotten(config), strict=True)
    ):
        if windows is None:
            # a shift moves no window over the arrival or the departure: a client has samples of the tasks in between
            begins = [
                arrival
                if usual <= arrival
                else max(begin, departure)
                if usual >= departure
                else min(max(begin, arrival + 1), departure - 1)
                for usual, begin in _boundaries(config, client)
            ]
            yield Attendance(begins, min(departure, request))
        else:
            window_rounds = windows.rounds_per_window
            begins = [arrival + window_rounds * window for window in range(stream.windows)]
            exhausted = begins[-1] + window_rounds if windows.on_exhausted == "drop" else ALWAYS
            yield Attendance(begins, min(departure, exhausted, request))


def _boundaries(config: Config, client: int) -> list[tuple[int, int]]:
    """Return the rounds at which windows usually begin, and at which they do for a client.

    All except the first are shifted by a uniform draw of up to jitter.
    """
    rounds, jitter = config.training.rounds_per_task or 0, config.scenario.jitter
    windows_per_task = rounds if config.scenario.online else 1
    usual = [1 + task * rounds + part for task in range(config.scenario.tasks) for part in range(windows_per_task)]
    if not jitter:
        return [*zip(usual, usual, strict=True)]
    draws = seeding.generator(config.seed, "boundaries", client)
    shifted = (begin + int(draws.integers(-jitter, jitter + 1)) for begin in usual[1:])
    return [*zip(usual, (usual[0], *shifted), strict=True)]
