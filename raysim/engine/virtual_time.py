"""Virtual time: how long work and messages take, and the timetable of an asynchronous run that follows from it.

The timetable says which clients are sent the model when, and which updates make which version of it. Finish times
depend on speeds, data sizes and draws, not on anything that is computed. So the whole order of events, and every
update's age, are known before the first step: the real machine determines only how fast they are computed.

FedBuff (Nguyen et al., AISTATS 2022, arXiv 2106.06639) with its buffer, FedAsync (Xie et al., 2019, arXiv 1903.03934)
with a buffer of one.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from raysim.config import Config
from raysim.config.timing import AsynchronousSchedule, Hinge, LogNormal, NoDiscount, Pareto, Speeds, Staleness
from raysim.system import seeding


def slowness(seed: int, client: int, speeds: Speeds) -> float:
    """Return this client's slowness: its time for some work as a multiple of a typical client's."""
    draws = seeding.generator(seed, "speed", client)
    if isinstance(speeds, LogNormal):
        return math.exp(speeds.sigma * float(draws.standard_normal()))
    if isinstance(speeds, Pareto):
        return 1 + float(draws.pareto(speeds.shape))  # NumPy's pareto is the Lomax distribution, which starts at 0
    return 1.0


class Clock:
    """The virtual seconds of every client's work, drawn from the speed profile, never measured."""

    def __init__(self, config: Config) -> None:
        speeds = config.schedule.speeds
        self._epochs = config.training.local_epochs or 0
        self._stepped = (config.training.local_steps or 0) * config.training.batch_size
        self._bandwidth = config.schedule.bandwidth
        self._per_sample = [
            speeds.seconds_per_sample * slowness(config.seed, client, speeds) for client in range(config.clients.count)
        ]

    def training(self, client: int, samples: int) -> float:
        """Return the virtual seconds of a client's phase on so many samples, all its epochs or steps together."""
        return self._per_sample[client] * (samples * self._epochs + self._stepped)

    def travel(self, nbytes: int) -> float:
        """Return the virtual seconds that it takes to transfer messages of `nbytes` bytes."""
        return 0.0 if self._bandwidth is None else nbytes / self._bandwidth


@dataclass(eq=False)
class Dispatch:
    """Dispatch of a client, sent version `version` of the model at virtual time `sent`, which returns at `back`.

    `update` is the server update (from 1) that its delta becomes a part of; None if it drops out, is discarded as
    too old, or is still in progress when the run ends.
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
        """The number of server updates between the model that the client was sent and the one it is mixed into."""
        assert self.update is not None
        return self.update - 1 - self.version

    @property
    def fate(self) -> Literal["used", "discarded", "unused", "dropped"]:
        """What came of it in the end; see Dispatched."""
        if self.update is not None:
            return "used"
        return "dropped" if self.dropped else "discarded" if self.discarded else "unused"


@dataclass(eq=False)
class Update:
    """A server update: the dispatches since the last one, in order, then the arrivals that it is made of."""

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


@dataclass(eq=False)
class EventSimulation:
    """Simulation of the events of an asynchronous run, one server update after the other.

    `present(version)` are the clients that have data when the model has this version, `seconds(client, version)` the
    virtual seconds that a client is away which is sent it, `updates` the number of server updates of the run.
    """

    seed: int
    schedule: AsynchronousSchedule
    dropout: float
    updates: int
    present: Callable[[int], Sequence[int]]
    seconds: Callable[[int, int], float]
    _under_way: list[tuple[float, int, Dispatch]] = field(default_factory=list, init=False)
    _buffer: list[Dispatch] = field(default_factory=list, init=False)
    _time: float = field(default=0.0, init=False)
    _count: int = field(default=0, init=False)
    _present: tuple[Sequence[int], npt.NDArray[np.bool_]] = field(default=((), np.zeros(0, dtype=bool)), init=False)

    def timetable(self) -> Iterator[Update]:
        """Yield all server updates of the run, in order."""
        update = Update(1, 0.0)
        while update.number <= self.updates:
            self._dispatch(update)
            # all clients that return at one moment are taken before any is sent out again; otherwise a client whose
            # peers complete the buffer at the same moment would be sent the previous model
            back = self._back_next()
            if not back:  # no client is away and none can be sent: the server uses the updates that it has
                yield self._closed(update)
                update = Update(update.number + 1, self._time)
            for dispatch in back:
                self._take(dispatch, update)
                if len(self._buffer) == self.schedule.buffer_size:
                    yield self._closed(update)
                    update = Update(update.number + 1, self._time)
                    if update.number > self.updates:
                        return

    def _dispatch(self, update: Update) -> None:
        """Send the model to idle clients, drawn uniformly, until as many train as may do so at a time."""
        version = update.number - 1
        away = [dispatch.client for _, _, dispatch in self._under_way]
        idle = self._idle_at(version, away)
        free = self.schedule.concurrency - len(away)
        if not len(idle) or free <= 0:
            return
        draws = seeding.generator(self.seed, "dispatch", self._count)
        for client in draws.choice(idle, size=min(free, len(idle)), replace=False).tolist():
            drops = self.dropout > 0 and self._drops_out(client)
            back = self._time + self.seconds(client, version)
            dispatch = Dispatch(self._count, client, version, self._time, back, drops)
            heapq.heappush(self._under_way, (back, dispatch.number, dispatch))
            update.dispatched.append(dispatch)
            self._count += 1

    def _idle_at(self, version: int, away: Sequence[int]) -> npt.NDArray[np.int64]:
        """Return the clients that are present and not away, ascending."""
        present = self.present(version)
        if self._present[0] is not present:
            mask = np.zeros(max(present, default=-1) + 1, dtype=bool)
            mask[list(present)] = True
            self._present = present, mask
        idle = self._present[1].copy()
        idle[[client for client in away if client < len(idle)]] = False
        return np.flatnonzero(idle)

    def _drops_out(self, client: int) -> bool:
        return seeding.generator(self.seed, "dropout", client, self._count).random() < self.dropout

    def _back_next(self) -> list[Dispatch]:
        """Return the dispatches that end at the next moment at which any does, in the order in which they were sent."""
        if self._under_way:
            self._time = self._under_way[0][0]
        back = []
        while self._under_way and self._under_way[0][0] == self._time:
            back.append(heapq.heappop(self._under_way)[2])
        return back

    def _take(self, dispatch: Dispatch, update: Update) -> None:
        oldest = self.schedule.max_staleness
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
