"""An asynchronous run's timetable: who is sent the model when, and which updates make which version of it.

Finish times depend on speeds, data sizes and draws, on nothing that is computed. So the whole order of events, and
every update's age, are known before the first step: the real machine decides only how fast they are computed.

FedBuff (Nguyen et al., AISTATS 2022, arXiv 2106.06639) with its buffer, FedAsync (Xie et al., 2019, arXiv 1903.03934)
with a buffer of one.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from raysim.config.timing import AsynchronousSchedule, Hinge, NoDiscount, Staleness
from raysim.system import seeding


@dataclass(eq=False)
class Dispatch:
    """A client that is sent version `version` of the model at virtual time `sent` and is back at `back`.

    `update` is the server update (from 1) that its delta becomes a part of; None where it drops out, is discarded as
    too old, or is still under way when the run ends.
    """

    number: int
    client: int
    version: int
    sent: float
    back: float
    dropped: bool
    update: int | None = None
    discarded: bool = False

    @property
    def staleness(self) -> int:
        """The server updates between the model that it was sent and the one that it is mixed into."""
        assert self.update is not None
        return self.update - 1 - self.version


@dataclass(eq=False)
class Update:
    """A server update: what was dispatched since the last one, in order, then the arrivals that it is made of."""

    number: int
    time: float
    dispatched: list[Dispatch] = field(default_factory=list)
    arrivals: list[Dispatch] = field(default_factory=list)
    discarded: list[Dispatch] = field(default_factory=list)


def discount(staleness: int, how: Staleness) -> float:
    """Return s(a), by which an update of age a is multiplied (Xie et al., section 5.2)."""
    if isinstance(how, NoDiscount):
        return 1.0
    if isinstance(how, Hinge):
        return 1.0 if staleness <= how.after else 1 / (how.slope * (staleness - how.after) + 1)
    return float((1 + staleness) ** -how.power)


@dataclass(frozen=True)
class World:
    """What a timetable depends on.

    `present(version)` are the clients that have data when the model has this version, `seconds(client, version)` how
    long one is away that is sent it; `updates` how many server updates the run has.
    """

    seed: int
    schedule: AsynchronousSchedule
    dropout: float
    updates: int
    present: Callable[[int], Sequence[int]]
    seconds: Callable[[int, int], float]


class _Play:
    """The event simulation, one server update after the other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._under_way: list[tuple[float, int, Dispatch]] = []
        self._buffer: list[Dispatch] = []
        self._time = 0.0
        self._count = 0

    def updates(self) -> Iterator[Update]:
        update = Update(1, 0.0)
        while update.number <= self._world.updates:
            self._dispatch(update)
            # all that come back at one moment are taken before anyone is sent out again, else a client whose equals
            # complete the buffer in the same moment would get the model from before
            back = self._back_next()
            if not back:  # nobody is away and nobody can go: the server makes do with what it has
                yield self._closed(update)
                update = Update(update.number + 1, self._time)
            for dispatch in back:
                self._take(dispatch, update)
                if len(self._buffer) == self._world.schedule.buffer_size:
                    yield self._closed(update)
                    update = Update(update.number + 1, self._time)
                    if update.number > self._world.updates:
                        return

    def _dispatch(self, update: Update) -> None:
        """Send the model to as many idle clients, drawn uniformly, as may train at a time."""
        version, world = update.number - 1, self._world
        away = {dispatch.client for _, _, dispatch in self._under_way}
        idle = [k for k in world.present(version) if k not in away]
        free = world.schedule.concurrency - len(away)
        draws = seeding.generator(world.seed, "dispatch", self._count)
        chosen = draws.choice(idle, size=min(free, len(idle)), replace=False) if idle and free > 0 else ()
        for client in map(int, chosen):
            drops = seeding.generator(world.seed, "dropout", client, self._count).random() < world.dropout
            back = self._time + world.seconds(client, version)
            dispatch = Dispatch(self._count, client, version, self._time, back, drops)
            heapq.heappush(self._under_way, (back, dispatch.number, dispatch))
            update.dispatched.append(dispatch)
            self._count += 1

    def _back_next(self) -> list[Dispatch]:
        """Return those that are back at the next moment at which anyone is, in the order in which they were sent."""
        if self._under_way:
            self._time = self._under_way[0][0]
        back = []
        while self._under_way and self._under_way[0][0] == self._time:
            back.append(heapq.heappop(self._under_way)[2])
        return back

    def _take(self, dispatch: Dispatch, update: Update) -> None:
        oldest = self._world.schedule.max_staleness
        if dispatch.dropped:
            return
        if oldest is not None and update.number - 1 - dispatch.version > oldest:
            dispatch.discarded = True
            update.discarded.append(dispatch)
            return
        self._buffer.append(dispatch)

    def _closed(self, update: Update) -> Update:
        update.time, update.arrivals, self._buffer = self._time, self._buffer, []
        for dispatch in update.arrivals:
            dispatch.update = update.number
        return update


def timetable(world: World) -> list[Update]:
    """Return all server updates of a run, in order."""
    return list(_Play(world).updates())
