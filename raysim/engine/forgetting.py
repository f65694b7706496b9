"""Requests to forget: which methods follow them exactly, how each is carried out, and how a run describes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from raysim.algorithms.parts import local_parameters
from raysim.api.forgetting import ForgettingServer
from raysim.api.method import Method
from raysim.config import Config
from raysim.engine.asynchronous import AsynchronousUpdates
from raysim.engine.compatibility import make_methods
from raysim.engine.events import Forgotten
from raysim.engine.exchange import Exchange
from raysim.engine.half_state import has_learned
from raysim.engine.synchronous import SynchronousRounds
from raysim.evaluation.forgotten_samples import Known, Probe, make_probe, measure
from raysim.federation.federation import Federation
from raysim.federation.forgetting import ForgetRequest, merge_positions
from raysim.models.flat import Weights
from raysim.system.errors import ConfigError

UNDER_WAY = "updates under way"


def forgets_exactly(methods: Mapping[str, Method]) -> bool:
    """Return whether the methods take samples out of what they have learned. Others leave samples out from then on."""
    return any(issubclass(method.Server, ForgettingServer) for method in methods.values())


def follow_requests(config: Config, federation: Federation) -> Federation:
    """Return the federation of a run, given what its methods do with requests to forget.

    With methods in closed form, the server leaves samples out, and clients are there as without requests. With methods
    that train, a client without other data is absent.

    Raises:
        ConfigError: an absent client holds samples that are in the sums: no one could take them out.
    """
    if not federation.forgetting:
        return federation
    if not forgets_exactly(make_methods(config)):
        named = {round: merge_positions(requests) for round, requests in federation.forgetting.items()}
        return replace(federation, availability=federation.availability.leaving_out(named))
    for requests in federation.forgetting.values():
        for request in requests:
            _check_present(federation, request)
    return federation


def _check_present(federation: Federation, request: ForgetRequest) -> None:
    """Refuse a request if an absent client holds samples that it has sent at a task's end."""
    availability, round = federation.availability, request.round
    for client, positions in request.positions.items():
        if availability.window(client, round) is not None:
            continue
        if bool((positions < availability.sent_at_ends(client, round)).any()):
            problem = (
                f"found round {round}, in which client {client} has no data but samples of the request in the sums"
            )
            allowed = "allowed: a round in which it can answer"
            raise ConfigError(f"clients.forget.{request.number}: {problem}, {allowed}")


class RequestsToForget:
    """Carries out the requests of a run.

    Args:
        config: the resolved config.
        federation: the run's data.
        exchange: the run's messages.
        schedule: the run's schedule, which knows what is under way.
        tested: returns the weights that the run evaluates, and `so_far` as in `Chunk`.
    """

    def __init__(
        self,
        config: Config,
        federation: Federation,
        exchange: Exchange,
        schedule: SynchronousRounds | AsynchronousUpdates,
        tested: Callable[[], tuple[Weights, int | None]],
    ) -> None:
        self._seed = config.seed
        self._threads = max(1, config.resources.server_cpus)
        self._federation = federation
        self._exchange = exchange
        self._schedule = schedule
        self._tested = tested
        self._exact = forgets_exactly({name: half.method for name, half in exchange.halves.items()})

    def follow(self, request: ForgetRequest) -> Forgotten:
        """Carry out a request, and return what it did."""
        exchange, traffic = self._exchange, self._exchange.traffic
        probe = make_probe(self._federation, request, self._seed)
        before = self._measure(probe)
        began, up, down = time.perf_counter(), traffic.up, traffic.down
        dropped: dict[str, int] = {}
        stays: list[str] = []
        if self._exact:
            exchange.forget(request.positions)
        else:
            reply = exchange.leave_out(request)
            under_way = 0
            if isinstance(self._schedule, AsynchronousUpdates):
                of_round = self._federation.forgetting[request.round]
                earlier = [each for each in of_round if each.number < request.number]
                under_way = self._schedule.count_outdated(request, earlier)
            dropped = {what: count for what, count in (reply.dropped | {UNDER_WAY: under_way}).items() if count}
            stays = [f"{_key_of(name)} at the clients" for name in sorted(reply.stays)]
            stays += [f"{_key_of(name)} at the server" for name in self._changed_servers() if probe.arrived]
        seconds = time.perf_counter() - began
        after = self._measure(probe) if self._exact else before  # the model stays
        done = Forgotten(
            request=request.number,
            round=request.round,
            what=request.what,
            samples=probe.arrived,
            to_come=sum(map(len, request.positions.values())) - probe.arrived,
            clients=len(request.positions),
            exact=self._exact,
            dropped=dropped,
            stays=stays,
            accuracy_forgotten=[before.accuracy_forgotten, after.accuracy_forgotten],
            accuracy_rest=[before.accuracy_rest, after.accuracy_rest],
            attack=[before.attack, after.attack],
            seconds=seconds,
            bytes_up=traffic.up - up,
            bytes_down=traffic.down - down,
            said="",
        )
        return {**done, "said": describe_forgotten(done)}

    def _measure(self, probe: Probe) -> Known:
        """Return what the tested model knows of a request."""
        weights, so_far = self._tested()
        return measure(self._exchange.server.network, weights, self._federation, probe, self._threads, so_far)

    def _changed_servers(self) -> Iterator[str]:
        """Yield the methods with another state at the server than at its start."""
        networks = {name.partition(".")[0] for name in self._exchange.server.networks.state()}
        for name, half in self._exchange.halves.items():
            if name in networks or has_learned(half):
                yield name


def _key_of(method: str) -> str:
    """Return what a user calls a method."""
    return "model.local" if method == local_parameters.NAME else method


def describe_forgotten(done: Forgotten) -> str:
    """Return what a request did, in plain words."""
    later = f", and {done['to_come']:,} to come are left out" * (done["to_come"] > 0)
    held = f"{_count(done['samples'], 'samples')} of {_count(done['clients'], 'clients')}{later}"
    begun = f"After round {done['round']}, {done['what']}: {held}."
    if done["exact"]:
        return f"{begun} Taken out of the sums: the model has the bits of a run without them."
    dropped = ", ".join(_count(number, what) for what, number in done["dropped"].items()) or "nothing"
    stays = ", ".join(done["stays"])
    learned = ", which was trained on them," * (done["samples"] > 0)
    also = f", nor was the state of {stays}" * bool(stays)
    return f"{begun} Dropped: {dropped}. The model{learned} was not changed{also}."


def _count(number: int, what: str) -> str:
    """Return a number of things, the first word of which is in the plural or the last one."""
    if number != 1:
        return f"{number:,} {what}"
    first, *rest = what.split()
    singular = (
        [first.removesuffix("s"), *rest] if rest[:1] in (["of"], ["under"]) else [*what.removesuffix("s").split()]
    )
    return " ".join(["1", *singular])
