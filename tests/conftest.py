from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import probes
import pytest
import torch

from raysim.config import Config, load
from raysim.events import Event, Finished, RoundDone, Started
from raysim.federation import Federation, build_federation
from raysim.host import Host
from raysim.local import LocalRunner
from raysim.recording import sha256
from raysim.seeding import torch_untouched
from raysim.simulation import Simulation

TINY = {
    "name": "tiny",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 36, "test": 20},
    "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"},
    "clients": {"count": 3},
    "model": {"name": "mlp", "hidden": [5]},
    "training": {"rounds_per_task": 2, "batch_size": 4, "optimizer": {"lr": 0.1}},
}


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


def run_here(config: Config, federation: Federation | None = None) -> Run:
    with torch_untouched():
        federation = federation or build_federation(config)
        simulation = Simulation(config, federation, LocalRunner(config, federation))
        return Run(simulation, list(simulation.events()))


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Config]:
    """A function that makes a small config: tiny(training__local_epochs=2)."""
    return tiny_config


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Run]:
    """A function that runs a config in this process, with no directory: simulate(config)."""
    return run_here


@pytest.fixture(scope="session")
def host_of() -> Callable[..., Host]:
    """A function that makes a host of all of a config's clients, the initial model posted."""

    def make(config: Config) -> Host:
        federation = build_federation(config)
        host = Host(config, federation, range(config.clients.count), torch.device("cpu"))
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
