"""Who takes part in which round, as the sampler or the timetable of an asynchronous schedule decides before a run."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raysim.api.method import Method, overrides
from raysim.api.server import Server
from raysim.config import Config
from raysim.config.timing import AsynchronousSchedule
from raysim.engine.asynchronous import plan_updates
from raysim.engine.compatibility import make_methods, unsent_bytes
from raysim.engine.exchange import expected_bytes, select_clients
from raysim.engine.hook_calls import HookCalls
from raysim.engine.profile import Profile
from raysim.engine.virtual_time import Clock, Dispatch, Update, drops_out
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel
from raysim.reports.stream.cells import rounds_per_column
from raysim.system.custom_code import is_custom

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
    totals: Mapping[Fate, int]
    """The trips of all clients by fate, in the rounds that were looked at."""
    looked_at: int
    """The number of rounds that were looked at."""
    always: bool
    """Whether every client that is present takes part in every round."""
    decided_by: str | None = None
    """The custom method that chooses the clients during the run, so that they are unknown before it."""
    seconds: float | None = None
    """The virtual seconds that an asynchronous run lasts."""


def find_turnout(config: Config, federation: Federation, model: FlatModel, clients: Collection[int]) -> Turnout:
    """Return who takes part in a run. Only these clients' trips are listed; the totals are of all clients.

    Raises:
        WrongResult: a custom sampler returned something other than ids of present clients.
    """
    methods, server = make_methods(config), Server(config, federation, model)
    choosing = [
        name for name, method in methods.items() if is_custom(type(method)) and overrides(method.Server, "select")
    ]
    if isinstance(config.schedule, AsynchronousSchedule):
        server.local_bytes = unsent_bytes(methods, model)
        nbytes = expected_bytes(server, methods)
        return _of_timetable(
            plan_updates(config, Clock(config), config.schedule, federation.availability, nbytes), clients
        )
    if choosing:
        return Turnout({}, {}, 0, False, choosing[0])
    return _of_rounds(config, server, methods, federation.availability.rounds, clients)


def _of_rounds(
    config: Config, server: Server, methods: Mapping[str, Method], rounds: int, clients: Collection[int]
) -> Turnout:
    """Return who takes part in synchronous rounds."""
    halves = [method.Server(name, method) for name, method in methods.items()]
    calls = HookCalls(server.network, Profile(False, server.network.device))
    trips: dict[int, list[ClientTrip]] = {client: [] for client in clients}
    totals: Counter[Fate] = Counter()
    always, wanted = True, frozenset(clients)
    looked_at = [*_choose_rounds(rounds)]
    for round in looked_at:
        server.round = round - 1
        server.begin_round()
        chosen = select_clients(server, halves, calls)
        always &= len(chosen) == len(server.present)
        # drawing who drops out takes long: of many rounds, only the listed clients' are drawn
        drawn = chosen if len(looked_at) == rounds else wanted.intersection(chosen)
        dropped = {client for client in drawn if drops_out(config.seed, config.clients.dropout, client, round)}
        always &= not dropped
        totals["dropped"] += len(dropped)
        totals["used"] += len(chosen) - len(dropped)
        for client in wanted.intersection(chosen):
            trips[client].append(ClientTrip(round - 1, round, "dropped" if client in dropped else "used", round))
    return Turnout(trips, totals, len(looked_at), always)


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
    totals: Counter[Fate] = Counter()
    too_old = {dispatch.number: update.number for update in updates for dispatch in update.discarded}
    for dispatch in (dispatch for update in updates for dispatch in update.dispatched):
        totals[dispatch.fate] += 1
        if dispatch.client in trips:
            until = dispatch.update or too_old.get(dispatch.number) or bisect_left(times, dispatch.back)
            trips[dispatch.client].append(_place(dispatch, until, times))
    return Turnout(trips, totals, len(updates), False, seconds=times[-1])


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
