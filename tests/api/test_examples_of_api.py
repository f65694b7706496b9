"""Every public function of raysim.api has an example, and the examples run with one tiny run's client and server."""

import doctest
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import raysim.api
from raysim.api import ClientHalf, Method, ServerHalf, Setting
from raysim.config import Config
from raysim.engine.local_training import epoch_of
from raysim.engine.orders import RoundInfo
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.system.seeding import torch_untouched

UNLABELLED = {"name": "synthetic", "classes": 4, "shape": [6], "train": 9, "test": 4}
PUBLIC = [name for name in raysim.api.__all__ if inspect.isroutine(getattr(raysim.api, name))]
CLASSES = [name for name in raysim.api.__all__ if inspect.isclass(getattr(raysim.api, name))]
HOOKS = [
    f"{half.__name__}.{name}"
    for half in (ClientHalf, ServerHalf)
    for name, function in vars(half).items()
    if not name.startswith("_") and inspect.isfunction(function)
] + [f"Method.{name}" for name in ("head_parts", "local_bytes", "unfit", "refusal")]


def functions_of(name: str) -> list[str]:
    """Return the public functions and properties of a class of raysim.api, as CLASS.NAME. Not those of torch."""
    own = [base for base in getattr(raysim.api, name).__mro__ if base.__module__.startswith("raysim.")]
    kinds = (property, cached_property, classmethod, staticmethod)
    found = {
        key
        for base in own
        for key, value in vars(base).items()
        if not key.startswith("_") and (inspect.isfunction(value) or isinstance(value, kinds))
    }
    return [f"{name}.{key}" for key in sorted(found)]


@dataclass(frozen=True, kw_only=True)
class Scale(Method):
    """The method of the half that the examples use."""

    factor: float = 0.5


EXAMPLES = [*PUBLIC, *CLASSES, *(function for name in CLASSES for function in functions_of(name))]


def example_of(name: str) -> str:
    """Return the docstring with the example. That of a function may be at a base of the class."""
    owner, _, key = name.partition(".")
    part = getattr(raysim.api, owner)
    parts = [vars(base).get(key) for base in part.__mro__] if key else [part]
    return next((part.__doc__ for part in parts if ">>>" in (getattr(part, "__doc__", None) or "")), "")


def run_example(name: str, names: dict[str, Any]) -> None:
    """Run an example in these names, to which it adds its own."""
    test = doctest.DocTestParser().get_doctest(example_of(name), names, name, None, None)
    failures: list[str] = []
    result = doctest.DocTestRunner().run(test, out=failures.append, clear_globs=False)
    names |= test.globs
    assert not result.failed, "".join(failures)


@pytest.fixture(scope="module")
def world(tiny: Callable[..., Config]) -> Iterator[dict[str, Any]]:
    """The names that the examples use: those of raysim.api, and a client, a server and a step of one run."""
    with torch_untouched():
        config = tiny(methods={"er": {}}, dataset__unlabelled=UNLABELLED)
        federation = build_federation(config)
        simulation = Simulation(config, federation, LocalRunner(config, federation))
        server, host = simulation.server, simulation.runner.host
        server.begin_round()
        server.cohort, server.shares = (0, 1, 2), server.shares_of([0, 1, 2])
        host.receive([server.broadcast()])
        client = host.clients[0]
        client.model.head = ("3.weight", "3.bias")
        client.begin_phase(RoundInfo(1, 0, 0.1), server.shares[0])
        delta = client.local_training()
        step = next(epoch_of(client, client.arrived, 0, None))
        step.logits = client.model(step.x)
        step.loss = client.loss(step.logits, step.y)
        names = {name: getattr(raysim.api, name) for name in raysim.api.__all__}
        names |= {"client": client, "server": server, "step": step, "delta": delta}
        names |= {"torch": torch, "nn": nn, "np": np, "dataclass": dataclass}
        half = names["half"] = ClientHalf("mine", Scale())
        half.old = client.model.parameters.clone()
        run_example("Encoded", names)  # whose class the example of `encode` returns
        yield names


def test_every_example_is_found() -> None:
    assert {"to_device", "Client", "Client.samples", "Client.generator", "Step", "FlatModel.widths"} <= {*EXAMPLES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_public_function_has_an_example(name: str) -> None:
    assert ">>>" in example_of(name), f"raysim.api.{name} has no example"


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_runs(name: str, world: dict[str, Any]) -> None:
    """With what the example of its class defines."""
    names = world | {"step": replace(world["step"])}
    for part in dict.fromkeys((name.partition(".")[0], name)):
        run_example(part, names)


@pytest.mark.parametrize("name", HOOKS)
def test_every_hook_of_an_example_works(name: str, world: dict[str, Any]) -> None:
    """The example defines the hook. It is called with a half, or with a method, and what raysim would give it."""
    names, client = world | {"step": replace(world["step"])}, world["client"]
    run_example(name, names)
    given = names | {
        "gradient": client.model.gradient,
        "model": client.model,
        "weights": client.model.copy(),
        "message": {"strength": 0.5},
        "reply": {"count": torch.tensor(12.0)},
        "setting": Setting(lr=0.1, clients=3, tasks=2, class_incremental=True),
        "name": "update",
        "vector": names["delta"].parameters,
        "draws": client.generator("draws"),
    }
    owner, _, key = name.partition(".")
    hook, declared = names[key], vars(getattr(raysim.api, owner))[key]
    parameters = list(inspect.signature(hook).parameters)
    assert parameters == list(inspect.signature(declared).parameters)
    result = hook(given["half"], *(given[parameter] for parameter in parameters[1:]))
    if key in ("prepare", "conclude", "end_task"):
        assert next(result).op == "count"
        with pytest.raises(StopIteration):
            result.send({"count": torch.tensor(36.0)})
    elif key == "batches":
        assert [len(x) == len(y) for x, y in result] == [True]
