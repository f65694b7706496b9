"""A run that goes on from a checkpoint is the run that was never stopped: the same rounds and bits, whatever it does.

Every run here is stopped after every one of its rounds: what is kept then is written to bytes, put into a new host and
a new server, and the rest of the run must be the rest of the undisturbed one.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_runs import config_keys, hyperparameters

from raysim.api import ClientHalf, Method
from raysim.config.lookup import table
from raysim.engine.compatibility import check_methods
from raysim.engine.events import Checkpoint, Finished, RoundDone
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.records.run_directory import sha256
from raysim.system.errors import ConfigError, RunError
from raysim.system.seeding import torch_untouched
from raysim.system.state import decode, describe_foreign, encode

EVERY = {"checkpoint": {"every_rounds": 1}, "training__batch_size": 3, "memory": {"capacity": 4}}
EVERY |= {"logging": {"dispatches": True, "memory": True}}
TURNS = {"participation": {"count": 2}, "model": {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}}
FEDBUFF = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}}
FEDASYNC = {
    "kind": "asynchronous",
    "concurrency": 2,
    "buffer_size": 1,
    "mixing": "models",
    "speeds": {"kind": "pareto"},
}
WINDOWS = {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"} | {
    "boundaries": {"asynchronous": {"window": 5, "rounds_per_window": 2}}
}
SETTINGS = {
    "drop-outs": {"clients": {"count": 3, "dropout": 0.4}, "methods": {"scaffold": {}}},
    "arrivals": {"clients": {"count": 3, "arrive": {"at": [{"round": 3, "clients": [1]}]}}, "methods": {"er": {}}},
    "augmented": {"dataset": {"name": "digits", "train_samples": 40, "augment": ["crop"]}, "methods": {"der": {}}},
    "class ring": {"memory": {"capacity": 3, "policy": "class_ring"}, "methods": {"a_gem": {}}},
    "per task": {"memory": {"capacity": 3, "per": "task"}, "methods": {"er": {}}},
    "c-flag kept": {"methods": {"c_flag": {"table": "keep"}}},
    "FedBuff": {"schedule": FEDBUFF, "methods": {"der": {}, "fed_a_gem": {"reference": "with_update"}}},
    "FedBuff, SCAFFOLD": {"schedule": FEDBUFF, "methods": {"scaffold": {}}},
    "FedAsync": {"schedule": FEDASYNC, "methods": {"fedprox": {}}},
    "FedBuff, encoded": {"schedule": FEDBUFF, "methods": {"quantize": {"bits": 2, "feedback": True}}},
    "windows": {"scenario": WINDOWS, "training": {"batch_size": 3}, "methods": {"a_gem": {}, "fed_a_gem": {}}},
    "own models": {
        "evaluation": {"model": "local", "every_rounds": 1},
        "methods": {"fedper": {}, "ditto": {}},
        **TURNS,
    },
    "own models, FedBuff": {"evaluation": {"model": "local", "every_rounds": 1}, "schedule": FEDBUFF},
    "windows, FedBuff": {
        "scenario": WINDOWS,
        "training": {"batch_size": 3},
        "schedule": FEDBUFF,
        "methods": {"er": {}},
    },
}


def goes_on(config):
    """Run a config; from each of its checkpoints run it to the end again; return all that must be equal."""
    with torch_untouched():
        federation = build_federation(config)
        events = list(Simulation(config, federation, LocalRunner(config, federation)).events())
        saved = [event for event in events if isinstance(event, Checkpoint)]
        ends = []
        for checkpoint in saved:
            (records,) = checkpoint.clients
            runner = LocalRunner(config, federation, records)
            ends.append(list(Simulation(config, federation, runner, checkpoint.server).events()))
    return events, saved, ends


def facts(events, after=0):
    rounds = [replace(e, seconds=0) for e in events if isinstance(e, RoundDone) and e.round > after]
    return rounds, [sha256(event.state) for event in events if isinstance(event, Finished)]


def assert_same(config):
    events, saved, ends = goes_on(config)
    assert [checkpoint.round for checkpoint in saved] == list(range(1, len(saved) + 1))
    assert len(saved) >= 3
    for checkpoint, rest in zip(saved, ends, strict=True):
        assert str(facts(rest)) == str(facts(events, checkpoint.round)), checkpoint.round


# a third of the methods; the soak tests have the others
IN_TURN = [
    pytest.param(name, marks=pytest.mark.soak if number % 3 else ())
    for number, name in enumerate(["probes:Noise", *table("method")])
]


@pytest.mark.parametrize("name", IN_TURN)
def test_every_method_goes_on_as_if_nothing_had_been(tiny, name):
    assert_same(tiny(methods={name: hyperparameters(name)}, **EVERY | TURNS | config_keys(name)))


@pytest.mark.parametrize("name", SETTINGS)
def test_so_does_every_kind_of_run(tiny, name):
    assert_same(tiny(**{**EVERY, **SETTINGS[name]}))


def endless(client, start):
    """A stream of the user's own: sample i of client k, the same each time."""
    for i in itertools.count(start):
        x = torch.randn(6, generator=torch.Generator().manual_seed(1000 * client + i)).numpy()
        yield x, (client + i) % 4


def test_so_does_a_stream_of_the_users_own(tiny):
    windows = {"window": 4, "windows": 3, "rounds_per_window": 2, "stream": "test_checkpoints:endless"}
    scenario = {
        "kind": "class_incremental",
        "tasks": 1,
        "boundaries": {"asynchronous": windows},
    }
    assert_same(tiny(**EVERY | {"training": {"batch_size": 3}}, scenario=scenario, methods={"er": {}}))


def test_a_state_comes_back_as_it_was():
    """2^62 + 1 is no float64; a column of a matrix is written without the matrix around it (4 of 4,000,000 bytes)."""
    matrix = torch.arange(1_000_000.0).reshape(1000, 1000)
    state = {"n": 2**62 + 1, 3: [True, None, (1.5, "a")], "x": matrix[:1, 0], "y": torch.tensor([1, 2]), "z": {}}
    record = encode(state)
    assert len(record) < 10_000
    back = decode(record)
    assert str(back) == str(state)
    assert back["y"].dtype == torch.int64


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({1, 2}, "a set, which a checkpoint cannot keep, allowed: a sorted list"),
        ([object()], "a object, which"),
        ({"a": ({},)}, None),
        ({"b": torch.Generator()}, "a Generator, which"),
        ({range(3): 1}, "a range, which"),
        ((1, {"c": [range(3)]}), "a range, which"),
        ([torch.nn.Linear(1, 1)], "a Linear, which a checkpoint cannot keep, allowed: its state_dict()"),
        (torch.optim.Adam([torch.zeros(1)]), "a Adam, which a checkpoint cannot keep, allowed: its state_dict()"),
        (torch.optim.Adam([torch.zeros(1)]).state_dict(), None),
        (np.float64(1), "a float64, which a checkpoint cannot keep, allowed: a number, as from .item()"),
        (np.zeros(1), "a ndarray, which a checkpoint cannot keep, allowed: a tensor, torch.from_numpy(array)"),
    ],
)
def test_what_cannot_be_kept_is_named(value, found):
    described = describe_foreign(value)
    assert described is None if found is None else described is not None and described.startswith(found)


class Hoarder(Method):
    """Keeps what no checkpoint can hold."""

    class Client(ClientHalf):
        def __init__(self, name, knobs):
            super().__init__(name, knobs)
            self.seen = {1, 2}


def test_a_half_that_keeps_something_else_is_refused_at_start(tiny):
    with pytest.raises(ConfigError, match=r"Hoarder: its client side's attribute seen holds a set, which a checkpoint"):
        check_methods(tiny(methods={"test_checkpoints:Hoarder": {}}))


def test_one_that_does_so_later_stops_the_run():
    half = Hoarder.Client("hoarder", Hoarder())
    half.seen = [1, 2]
    assert half.state() == {"seen": [1, 2]}
    half.seen.append(range(3))
    with pytest.raises(RunError, match="attribute seen holds a range"):
        half.state()
