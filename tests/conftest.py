from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import probes
import pytest
import torch
from small_configs import TINY

from raysim.api.messages import Broadcast
from raysim.config import Config, load
from raysim.engine.events import Event, Finished, RoundDone, Started
from raysim.engine.forgetting import follow_requests
from raysim.engine.host import ClientHost
from raysim.engine.memory_counts import count_remembered
from raysim.engine.orders import Order, OwnMessages
from raysim.engine.replies import Reply
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.evaluation.scoring import Chunk, Counts, Scores, merge_scores
from raysim.federation.federation import Federation, build_federation
from raysim.records.run_directory import sha256
from raysim.system.importing import uncollected
from raysim.system.seeding import torch_untouched


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect the tests without looking for garbage in what they import, which takes a sixth of the time."""
    with uncollected():
        return (yield)


def tiny_config(**overrides: object) -> Config:
    """3 clients with 12 samples each, 2 tasks of 2 rounds, batches of 4; dots are written as __ in the keys."""
    return load(TINY, {key.replace("__", "."): value for key, value in overrides.items()})


@dataclass(frozen=True)
class Run:
    """A simulation that is over, and its events."""

    simulation: Simulation
    events: list[Event]

    @property
    def started(self) -> Started:
        return next(event for event in self.events if isinstance(event, Started))

    @property
    def rounds(self) -> list[RoundDone]:
        return [event for event in self.events if isinstance(event, RoundDone)]

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        return next(event for event in self.events if isinstance(event, Finished)).state

    @property
    def sha256(self) -> str:
        return sha256(self.state)


class Scattered(LocalRunner):
    """Several hosts in this process, as Ray has them: each is asked for its own clients, and the replies are merged.

    Clients come in the order that their host has them in, and the last host answers first.
    """

    def __init__(self, config: Config, federation: Federation, places: Sequence[Sequence[int]]) -> None:
        super().__init__(config, federation)
        self.hosts = [ClientHost(config, federation, own, self.host.model.device) for own in places]
        del self.host

    def begin(self, order: Order, message: Any, broadcasts: Sequence[Broadcast]) -> Reply:
        reply = Reply(order.cohort_size)
        for host in reversed(self.hosts):
            own = tuple(client for client in host.clients if client in order.clients)
            if own:
                part = message.part(own) if isinstance(message, OwnMessages) else message
                reply.merge(host.perform(replace(order, clients=own), part, broadcasts))
        return reply

    def evaluate(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Scores:
        count = len(self.hosts)
        shares = [(host, parts[number::count]) for number, host in enumerate(self.hosts) if parts[number::count]]
        return merge_scores([host.evaluate(own, broadcasts) for host, own in shares])

    def evaluate_clients(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Mapping[int, Scores]:
        return {
            client: scores
            for host in reversed(self.hosts)
            for client, scores in host.evaluate_clients(parts, broadcasts).items()
        }

    def count_remembered(self) -> Counts:
        total: Counts = sum(count_remembered(host) for host in self.hosts)
        return total

    def snapshot(self) -> list[dict[int, bytes]]:
        return [host.snapshot() for host in self.hosts]


def run_here(
    config: Config, federation: Federation | None = None, places: Sequence[Sequence[int]] | None = None
) -> Run:
    with torch_untouched():
        federation = federation or follow_requests(config, build_federation(config))
        runner = LocalRunner(config, federation) if places is None else Scattered(config, federation, places)
        simulation = Simulation(config, federation, runner)
        return Run(simulation, list(simulation.events()))


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Config]:
    """A function that makes a small config: tiny(training__local_epochs=2)."""
    return tiny_config


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Run]:
    """A function that runs a config in this process, with no directory: simulate(config).

    `places` are the clients of each host, by default of one that has all.
    """
    return run_here


@pytest.fixture(scope="session")
def host_of() -> Callable[..., ClientHost]:
    """A function that makes a host of all of a config's clients, the initial model posted."""

    def make(config: Config) -> ClientHost:
        federation = build_federation(config)
        host = ClientHost(config, federation, range(config.clients.count), torch.device("cpu"))
        host.receive([probes.model_post(host.model)])
        return host

    return make


@pytest.fixture
def log() -> Iterator[list[Any]]:
    """What the probe methods write down, empty at the start of the test."""
    probes.LOG.clear()
    yield probes.LOG
    probes.LOG.clear()


@pytest.fixture
def quiet_torch() -> Iterator[None]:
    """One thread and torch's generators put back afterwards, for tests that use hosts directly."""
    with torch_untouched():
        torch.set_num_threads(1)
        yield
