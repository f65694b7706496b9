"""Who takes part in a run. The schedules, the estimate and the picture of a stream read it here.

Under a synchronous schedule, a method's hook `select` or the sampler chooses each round's clients. A draw decides which
of them drop out. Under an asynchronous one, a timetable has all dispatches. Both are known before the first step,
except if `select` is a custom method's: it may read computed values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from raysim.api.method import Method, ServerHalf, halves_with_hook, overrides
from raysim.config import Config
from raysim.config.timing import AsynchronousSchedule
from raysim.engine.exchange import expected_bytes, guard_hook
from raysim.engine.hook_calls import HookCalls
from raysim.engine.hosted_server import HostedServer
from raysim.engine.profile import Profile
from raysim.engine.virtual_time import Clock, EventSimulation, Update, drops_out
from raysim.federation.availability import Availability
from raysim.system.custom_code import Component, is_custom, place_of
from raysim.system.seeding import guard_globals


@dataclass(frozen=True)
class Participants:
    """The clients of one synchronous round."""

    round: int
    """The round, from 1."""
    chosen: tuple[int, ...]
    """The ids of the clients that receive the model, ascending."""
    seed: int
    """The run's seed."""
    dropout: float
    """The probability that a chosen client drops out."""

    def fate(self, client: int) -> Literal["used", "dropped"]:
        """Return the fate of a chosen client: a dropped one receives the model, but does not train."""
        return "dropped" if drops_out(self.seed, self.dropout, client, self.round) else "used"

    @cached_property
    def dropped(self) -> tuple[int, ...]:
        """The chosen clients that drop out, ascending. They are drawn when first asked for, as many draws take long."""
        return tuple(client for client in self.chosen if self.fate(client) == "dropped") if self.dropout else ()

    @property
    def fates(self) -> list[Literal["used", "dropped"]]:
        """The fate of each chosen client."""
        return [self.fate(client) for client in self.chosen]

    @cached_property
    def cohort(self) -> tuple[int, ...]:
        """The chosen clients that train, ascending."""
        without = {*self.dropped}
        return tuple(client for client in self.chosen if client not in without)


def choose_participants(
    config: Config, server: HostedServer, halves: Iterable[ServerHalf], calls: HookCalls
) -> Participants:
    """Return who takes part in the server's current round, chosen by one of these halves or by the sampler.

    Raises:
        WrongResult: the choice is something other than ids of different clients that are present.
    """
    chosen, present = _select(config.participation.sampler.function(), server, halves, calls), server.present
    # a plan of thousands of rounds shares one tuple if all clients take part
    ids = present if len(chosen) == len(present) else tuple(sorted(chosen))
    return Participants(server.round, ids, config.seed, config.clients.dropout)


def _select(sampler: Component, server: HostedServer, halves: Iterable[ServerHalf], calls: HookCalls) -> Sequence[int]:
    """Return the clients that a half chooses or else the config's sampler, in any order."""
    for half in halves_with_hook(halves, "select"):
        with guard_hook(half, "select"):
            chosen: Sequence[int] = calls(half, "select", server)
        return chosen
    if not is_custom(sampler):
        return server.sample()
    kept: AbstractContextManager[None] = nullcontext()
    if calls.model is not None:
        kept = calls.model.kept_by(lambda: f"participation.sampler: {place_of(sampler)}")
    with guard_globals("participation.sampler", "server"), kept:
        return server.sample()


def plan_rounds(
    config: Config, server: HostedServer, methods: Mapping[str, Method], rounds: Iterable[int]
) -> Iterator[Participants]:
    """Yield who takes part in these rounds of a synchronous schedule. The server is in the round that is yielded.

    Nothing is trained. So the clients that a method of `choosing_methods` chooses may be others in the run.

    Raises:
        WrongResult: the choice is something other than ids of different clients that are present.
    """
    halves = [method.Server(name, method) for name, method in methods.items()]
    calls = HookCalls(server.network, Profile(False, server.network.device), server=server)
    for round in rounds:
        server.round = round - 1
        server.begin_round()
        yield choose_participants(config, server, halves, calls)


def choosing_methods(methods: Mapping[str, Method]) -> list[str]:
    """Return the custom methods that choose the clients. No plan before the run is sure of their choice."""
    own = {name: method for name, method in methods.items() if is_custom(type(method))}
    return [name for name, method in own.items() if overrides(method.Server, "select")]


def plan_updates(
    config: Config, availability: Availability, server: HostedServer, methods: Mapping[str, Method]
) -> list[Update]:
    """Return the timetable of an asynchronous schedule: each server update's dispatches, arrivals and staleness.

    `server.local_bytes` must be set, as the time of a dispatch depends on the bytes that are sent.
    """
    schedule, clock = config.schedule, Clock(config)
    assert isinstance(schedule, AsynchronousSchedule)
    travel = clock.travel(expected_bytes(server, methods))

    def seconds(client: int, version: int) -> float:
        return clock.training(client, availability.size(client, version + 1)) + travel

    simulation = EventSimulation(
        seed=config.seed,
        schedule=schedule,
        dropout=config.clients.dropout,
        updates=availability.rounds,
        present=lambda version: availability.present(version + 1),
        seconds=seconds,
        outdated=lambda client, version: availability.outdated_after(client, version + 1),
    )
    return list(simulation.timetable())
