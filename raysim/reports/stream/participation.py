"""Who takes part in which round, as the sampler or the timetable of an asynchronous schedule decides before a run."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from raysim.api.server import Server
from raysim.config import Config
from raysim.config.timing import AsynchronousSchedule
from raysim.engine.attendance import Participants, choosing_methods, plan_rounds, plan_updates
from raysim.engine.compatibility import make_methods, unsent_bytes
from raysim.engine.virtual_time import Dispatch, Update
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel
from raysim.reports.stream.cells import rounds_per_column

Fate = Literal["used", "discarded", "unused", "dropped"]
FATES: tuple[Fate, ...] = ("used", "discarded", "unused", "dropped")
MOST_LOOKED_AT = 4000  # synchronous rounds; of more, some of each column are looked at


@dataclass(frozen=True)
class ClientTrip:
    """A client's part in a round: it receives the model and trains. Its fate is that of a dispatch.

    Times are in rounds: round r lasts from r - 1 to r. An asynchronous trip may last for several rounds, or a part of
    one.
    """

    start: float
    end: float
    fate: Fate
    round: int
    """The round in which it ends: the one that uses its update, if it is used."""


@dataclass(frozen=True)
class Turnout:
    """Who takes part in which round."""

    trips: Mapping[int, Sequence[ClientTrip]]
    """By client of those that were asked for: its trips in order."""
    plan: Sequence[Participants | Update]
    """The plan of the rounds that were looked at, of all clients."""
    always: bool
    """Whether every client that is present takes part in every round."""
    decided_by: str | None = None
    """The custom method that chooses the clients during the run, so that they are unknown before it."""
    seconds: float | None = None
    """The virtual seconds that an asynchronous run lasts."""

    @property
    def looked_at(self) -> int:
        """The number of rounds that were looked at."""
        return len(self.plan)

    @cached_property
    def totals(self) -> Mapping[Fate, int]:
        """The trips of all clients by fate, in the rounds that were looked at."""
        return Counter(fate for of_round in self.plan for fate in of_round.fates)


def find_turnout(config: Config, federation: Federation, model: FlatModel, clients: Collection[int]) -> Turnout:
    """Return who takes part in a run. Only these clients' trips are listed; the totals are of all clients.

    Raises:
        WrongResult: a custom sampler returned something other than ids of present clients.
    """
    methods, server = make_methods(config), Server(config, federation, model)
    server.local_bytes = unsent_bytes(methods, model)
    if isinstance(config.schedule, AsynchronousSchedule):
        return _of_timetable(plan_updates(config, federation.availability, server, methods), clients)
    if choosing := choosing_methods(methods):
        return Turnout({}, (), False, choosing[0])
    looked_at = _choose_rounds(federation.availability.rounds)
    plan, trips, wanted = [], {client: list[ClientTrip]() for client in clients}, frozenset(clients)
    always = True
    for participants in plan_rounds(config, server, methods, looked_at):
        plan.append(participants)
        always &= len(participants.chosen) == len(server.present)
        for client in wanted.intersection(participants.chosen):
            trip = ClientTrip(participants.round - 1, participants.round, participants.fate(client), participants.round)
            trips[client].append(trip)
    return Turnout(trips, plan, always and not any(participants.dropped for participants in plan))


def _choose_rounds(rounds: int) -> Iterator[int]:
    """Yield the rounds to look at: all, or some of every column, drawn at random. The first is among them."""
    if rounds <= MOST_LOOKED_AT:
        yield from range(1, rounds + 1)
        return
    width = rounds_per_column(rounds)
    each = max(1, MOST_LOOKED_AT * width // rounds)
    draws = np.random.default_rng(0)  # evenly spaced ones would all be alike under round_robin
    for begin in range(1, rounds + 1, width):
        others = draws.permutation(np.arange(begin + 1, min(begin + width, rounds + 1)))[: each - 1]
        yield from sorted([begin, *others.tolist()])


def _of_timetable(updates: Sequence[Update], clients: Collection[int]) -> Turnout:
    """Return who takes part under an asynchronous schedule."""
    times = [0.0, *(update.time for update in updates)]
    trips: dict[int, list[ClientTrip]] = {client: [] for client in clients}
    too_old = {dispatch.number: update.number for update in updates for dispatch in update.discarded}
    for dispatch in (dispatch for update in updates for dispatch in update.dispatched):
        if dispatch.client in trips:
            until = dispatch.update or too_old.get(dispatch.number) or bisect_left(times, dispatch.back)
            trips[dispatch.client].append(_place(dispatch, until, times))
    return Turnout(trips, updates, False, seconds=times[-1])


def _place(dispatch: Dispatch, until: int, times: Sequence[float]) -> ClientTrip:
    """Return a dispatch as a trip, which ends in the round `until`. times[r] is the virtual time at round r's end."""

    def position(time: float, round: int) -> float:
        if round >= len(times):
            return float(len(times) - 1)
        lasts = times[round] - times[round - 1]
        return round - 1 + (min(max((time - times[round - 1]) / lasts, 0.0), 1.0) if lasts else 0.0)

    until = max(until, dispatch.version + 1)
    start = position(dispatch.sent, dispatch.version + 1)
    return ClientTrip(start, max(start, position(dispatch.back, until)), dispatch.fate, min(until, len(times) - 1))


def shares_by_column(trips: Sequence[ClientTrip], rounds: int, looked_at: int) -> list[float]:
    """Return which part of each column of rounds a client spends on trips with used updates."""
    width = rounds_per_column(rounds)
    edges = [*range(0, rounds, width), rounds]
    covered = np.zeros(len(edges) - 1)
    for trip in trips:
        column = int(trip.start) // width
        while trip.fate == "used" and column < len(covered) and edges[column] < trip.end:
            covered[column] += max(0.0, min(trip.end, edges[column + 1]) - max(trip.start, edges[column]))
            column += 1
    lasts = np.diff(edges) * (looked_at / rounds)
    return [float(share) for share in np.minimum(covered / lasts, 1.0)]
