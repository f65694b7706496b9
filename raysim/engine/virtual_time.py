"""Virtual time: how long work and messages take, and the resulting timetable of an asynchronous run.

The timetable lists when each client receives the model. It also lists the deltas that each server update applies. It
depends on speeds, data sizes and random draws, but on no computed value. So the order of events and the staleness of
every delta are known before the first step. The real machine only determines how fast the deltas are computed.

FedBuff (Nguyen et al., AISTATS 2022, arXiv 2106.06639) has a buffer of several updates. FedAsync (Xie et al., 2019,
arXiv 1903.03934) has a buffer of one.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from raysim.config import Config
from raysim.config.timing import AsynchronousSchedule, Constant, Hinge, LogNormal, NoDiscount, Speeds, Staleness
from raysim.federation.availability import ALWAYS
from raysim.system import seeding

SMALLEST_DISCOUNT = 2.0**-40
"""With a smaller factor, all weights of a mean could round to 0."""


def slowness(seed: int, client: int, speeds: Speeds) -> float:
    """Return this client's slowdown: its time divided by a typical client's time."""
    if isinstance(speeds, Constant):
        return 1.0
    draws = seeding.generator(seed, "speed", client)
    if isinstance(speeds, LogNormal):
        return math.exp(speeds.sigma * float(draws.standard_normal()))
    return 1 + float(draws.pareto(speeds.shape))  # NumPy's pareto is the Lomax distribution, which starts at 0


def drops_out(seed: int, rate: float, client: int, occasion: int) -> bool:
    """Draw whether a client drops out of a round or a dispatch: it receives the model, but does not train."""
    return rate > 0 and seeding.generator(seed, "dropout", client, occasion).random() < rate


class Clock:
    """Virtual seconds of every client's work. They are drawn from the speed profile, never measured."""

    def __init__(self, config: Config) -> None:
        speeds = config.schedule.speeds
        self._epochs = config.training.local_epochs or 0
        self._step_samples = (config.training.local_steps or 0) * config.training.batch_size
        self._bandwidth = config.schedule.bandwidth
        self._per_sample = [
            speeds.seconds_per_sample * slowness(config.seed, client, speeds) for client in range(config.clients.count)
        ]

    def training(self, client: int, samples: int) -> float:
        """Return the virtual seconds of a client's local training on this many samples, over all epochs or steps."""
        return self._per_sample[client] * (samples * self._epochs + self._step_samples)

    def travel(self, nbytes: int) -> float:
        """Return the virtual seconds to transfer `nbytes` bytes."""
        return 0.0 if self._bandwidth is None else nbytes / self._bandwidth


@dataclass(eq=False)
class Dispatch:
    """One client's trip: it receives the model, trains, and returns its update."""

    number: int  # the index of the dispatch in the run, from 0
    client: int
    version: int  # the version of the model that the client receives
    sent: float  # the virtual time at which the client receives the model
    back: float  # the virtual time at which the client returns
    dropped: bool  # whether the client drops out and sends no update
    update: int | None = None  # the server update (from 1) that applies the client's delta, if any
    discarded: bool = False  # whether the client's update was too old, or is of samples that are forgotten
    forgotten: bool = False  # whether it is discarded because of a request to forget

    @property
    def staleness(self) -> int:
        """How many server updates came between the client's version and the update that uses the client's delta."""
        assert self.update is not None
        return self.update - 1 - self.version

    @property
    def fate(self) -> Literal["used", "discarded", "unused", "dropped"]:
        """The result; see Dispatched."""
        if self.update is not None:
            return "used"
        return "dropped" if self.dropped else "discarded" if self.discarded else "unused"


@dataclass(eq=False)
class Update:
    """A server update."""

    number: int  # the index of the update, from 1
    time: float  # the virtual time
    dispatched: list[Dispatch] = field(default_factory=list)  # the dispatches since the last server update, in order
    arrivals: list[Dispatch] = field(default_factory=list)  # the dispatches with client updates that are applied now
    discarded: list[Dispatch] = field(default_factory=list)  # the dispatches with client updates that are discarded

    @property
    def fates(self) -> list[Literal["used", "discarded", "unused", "dropped"]]:
        """The fate of each dispatch since the last server update."""
        return [dispatch.fate for dispatch in self.dispatched]


def discount(staleness: int, how: Staleness) -> float:
    """Return s(a), the factor of an update with staleness a (Xie et al., section 5.2), at least SMALLEST_DISCOUNT."""
    if isinstance(how, NoDiscount):
        return 1.0
    if isinstance(how, Hinge):
        factor = 1.0 if staleness <= how.after else 1 / (how.slope * (staleness - how.after) + 1)
    else:
        factor = float((1 + staleness) ** -how.power)
    return max(factor, SMALLEST_DISCOUNT)


def _never(client: int, version: int) -> int:
    return ALWAYS


@dataclass(eq=False)
class EventSimulation:
    """Simulation of an asynchronous run's events, without computing any update."""

    seed: int
    schedule: AsynchronousSchedule
    dropout: float  # the probability that a dispatched client drops out
    updates: int  # the number of server updates of the run
    present: Callable[[int], Sequence[int]]  # model version -> the clients that have data then, ascending
    seconds: Callable[[int, int], float]  # (client, model version) -> seconds from dispatch to return
    # (client, model version) -> the server update after which its data are forgotten, in part or all
    outdated: Callable[[int, int], int] = _never
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
            # Process all returns at one virtual time before new dispatches. Otherwise a dispatch could get a model that
            # is already outdated.
            back = self._back_next()
            if not back:  # no client is away, and none can be sent out: apply the updates in the buffer
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
        """Send the model to idle clients, drawn uniformly, up to the schedule's concurrency."""
        version = update.number - 1
        away = [dispatch.client for _, _, dispatch in self._under_way]
        idle = self._idle_at(version, away)
        free = self.schedule.concurrency - len(away)
        if not len(idle) or free <= 0:
            return
        draws = seeding.generator(self.seed, "dispatch", self._count)
        for client in draws.choice(idle, size=min(free, len(idle)), replace=False).tolist():
            drops = drops_out(self.seed, self.dropout, client, self._count)
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

    def _back_next(self) -> list[Dispatch]:
        """Advance to the next time at which clients come back. Return their dispatches, by ascending number."""
        if self._under_way:
            self._time = self._under_way[0][0]
        back = []
        while self._under_way and self._under_way[0][0] == self._time:
            back.append(heapq.heappop(self._under_way)[2])
        return back

    def _take(self, dispatch: Dispatch, update: Update) -> None:
        """Put a returned dispatch into the buffer, unless it dropped out or is too old."""
        max_staleness, done = self.schedule.max_staleness, update.number - 1
        if dispatch.dropped:
            return
        dispatch.forgotten = self.outdated(dispatch.client, dispatch.version) <= done
        if dispatch.forgotten or (max_staleness is not None and done - dispatch.version > max_staleness):
            dispatch.discarded = True
            update.discarded.append(dispatch)
            return
        self._buffer.append(dispatch)

    def _closed(self, update: Update) -> Update:
        """Move the buffered dispatches into the server update, and return it."""
        update.time, update.arrivals, self._buffer = self._time, self._buffer, []
        for dispatch in update.arrivals:
            dispatch.update = update.number
        return update
