"""What lasts of a run is declared once: an attribute that anybody adds is in the checkpoint without a further word."""

from dataclasses import dataclass

import pytest
import torch

from raysim.api import ClientHalf, Method, ServerHalf
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.system.state import Stateful, encode

ASYNCHRONOUS = {"kind": "asynchronous", "concurrency": 2, "buffer_size": 1}


@dataclass(frozen=True, kw_only=True)
class Plain(Method):
    """Two halves that keep nothing of their own."""

    Client = type("Client", (ClientHalf,), {})
    Server = type("Server", (ServerHalf,), {})


@pytest.fixture
def simulations(tiny, quiet_torch):
    """A function: two simulations of one config, as a run and the one that goes on with it have them."""

    def make(**overrides):
        config = tiny(methods={"test_kept:Plain": {}, "er": {}}, **overrides)
        federation = build_federation(config)
        return [Simulation(config, federation, LocalRunner(config, federation)) for _ in range(2)]

    return make


def kept_in(simulation):
    """Every object of a run that a checkpoint holds, by a name."""
    client = simulation.runner.host.clients[1]
    return {
        "simulation": simulation,
        "server": simulation.server,
        "exchange": simulation.exchange,
        "schedule": simulation.schedule,
        "traffic": simulation.exchange.traffic,
        "server half": simulation.exchange.halves["Plain"],
        "client": client,
        "client half": client.halves["Plain"],
    }


@pytest.mark.parametrize("schedule", [{"kind": "synchronous"}, ASYNCHRONOUS], ids=["synchronous", "asynchronous"])
@pytest.mark.parametrize(
    "where", ["simulation", "server", "exchange", "schedule", "traffic", "server half", "client", "client half"]
)
def test_an_attribute_that_is_added_is_in_the_checkpoint(simulations, where, schedule):
    first, second = simulations(schedule=schedule)
    kept_in(first)[where].novel = torch.tensor([3.0, 7.0])
    second.restore(dict(first.state()))
    second.runner.host.restore(first.runner.host.snapshot())
    assert kept_in(second)[where].novel.tolist() == [3.0, 7.0]


def test_what_is_made_again_is_not():
    class Thing(Stateful):
        transient = frozenset({"shared"})

        def __init__(self):
            self.shared, self.own = object(), 1

    assert Thing().state() == {"own": 1}
    assert encode(Thing().state())
