"""The local loop never waits for a GPU: no Python number or branch is made of what would be there.

On a GPU all floating numbers are on the device, what was sent there, and what is computed of them (a comparison, say);
positions and draws are on the CPU. So what would wait can be seen on a CPU too: such a tensor read into a number, asked
for on the CPU, compared as a whole, or indexed by a mask, whose count a GPU must be asked for.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from raysim.algorithms import c_flag, re_fed
from raysim.algorithms.c_flag import CFlag
from raysim.algorithms.parts.gradient_table import Components
from raysim.algorithms.re_fed import ReFed
from raysim.api import Delta, Term, client
from raysim.engine import hosted_client, local_training
from raysim.engine.collection import ClientUpdate, Collection
from raysim.engine.host import ClientHost
from raysim.engine.orders import RoundInfo
from raysim.system.errors import Diverged

IMAGES = {"dataset": {"name": "synthetic", "classes": 4, "shape": [1, 28, 28], "train": 48, "test": 20}}
METHODS: dict[str, dict[str, Any]] = {
    "fedprox": {"fedprox": {}},
    "scaffold": {"scaffold": {}},
    "a_gem": {"a_gem": {}},
    "er": {"er": {}},
    "der": {"der": {"beta": 0.5}},
    "fed_a_gem": {"fed_a_gem": {}},
    "special_c": {"special_c": {"prox_every": "step"}},
    "lwf": {"lwf": {}},
    "flwf": {"flwf": {}},
    "top_k": {"fed_a_gem": {}, "top_k": {"vectors": "all"}},
    "quantize": {"scaffold": {}, "quantize": {"vectors": "all", "feedback": True}},
}
ASKING = ("cpu", "numpy", "tolist", "item", "__float__", "__bool__", "__int__")


class Waits(TorchDispatchMode):
    """Notes the operations for which a GPU would have to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._sent: dict[int, torch.Tensor] = {}  # and what came of it, by id; kept, so that no id has two meanings

    def on_device(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and (value.is_floating_point() or id(value) in self._sent)

    def to_device(self, tensor: torch.Tensor, device: object = None) -> torch.Tensor:
        """Return a copy that counts as being on the device."""
        if not isinstance(tensor, torch.Tensor):
            return tensor
        copy = tensor.clone()
        self._sent[id(copy)] = copy
        return copy

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        reads = name in ("_local_scalar_dense", "nonzero", "equal")
        masks = name in ("index", "index_put_", "index_put") and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        if (reads or masks) and self.on_device(args[0]):
            self.found.append(name)
        made = func(*args, **(kwargs or {}))
        if any(map(self.on_device, tree_leaves((args, kwargs)))):
            self._sent |= {id(each): each for each in tree_leaves(made) if isinstance(each, torch.Tensor)}
        return made

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what happens while this lasts."""
        with pytest.MonkeyPatch.context() as patch, self:
            for name in ASKING:
                patch.setattr(torch.Tensor, name, self._noted(name, getattr(torch.Tensor, name)))
            for module in (local_training, client, hosted_client):
                patch.setattr(module, "to_device", self.to_device)
            yield

    def _noted(self, name: str, call: Any) -> Any:
        def asked(tensor: torch.Tensor, *args: Any) -> Any:
            if self.on_device(tensor):
                self.found.append(name)
            return call(tensor, *args)

        return asked

    def watched(self, call: Any) -> Any:
        """Return the function, watched."""

        @wraps(call)
        def within(*args: Any, **kwargs: Any) -> Any:
            with self.watching():
                return call(*args, **kwargs)

        return within


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """What would wait in local training, as long as the test lasts."""
    seen = Waits()
    monkeypatch.setattr(hosted_client, "run_local_loop", seen.watched(hosted_client.run_local_loop))
    return seen


@pytest.mark.parametrize("name", METHODS)
def test_no_step_waits(name: str, waits: Waits, simulate: Any, tiny: Any) -> None:
    clipped = {} if name == "scaffold" else {"training__clip_norm": 1.0}
    config = tiny(**IMAGES, model={"name": "mnist_cnn"}, methods=METHODS[name], dataset__augment=["crop"], **clipped)
    simulate(config)
    assert waits.found == []


def endless(client: int, start: int) -> Iterator[tuple[Any, int]]:
    """A stream of one's own."""
    return ((np.full((1, 28, 28), position % 7, np.float32), position % 4) for position in count(start))


@pytest.mark.parametrize("name", ["er", "joint"])
def test_no_step_waits_for_a_stream_of_ones_own(name: str, waits: Waits, simulate: Any, tiny: Any) -> None:
    windows = {"window": 12, "windows": 3, "rounds_per_window": 1, "stream": "test_no_waiting:endless"}
    scenario = {"kind": "class_incremental", "tasks": 2, "boundaries": {"asynchronous": windows}}
    more = {"scenario": scenario, "training__rounds_per_task": None, "memory": {"capacity": 5}}
    simulate(tiny(**IMAGES, model={"name": "mnist_cnn"}, methods={name: {}}, **more))
    assert waits.found == []


LOOPS: dict[str, list[tuple[Any, str]]] = {
    "c_flag": [(Components, "gradient"), (c_flag, "refresh"), (CFlag.Client, "_weighed")],
    "fedtrack": [(Components, "gradient"), (c_flag, "refresh"), (CFlag.Client, "_weighed")],
    "re_fed": [(ReFed.Client, "_step"), (re_fed, "squared_norms")],
}


@pytest.mark.parametrize("name", LOOPS)
def test_no_step_of_a_loop_of_its_own_waits(
    name: str, simulate: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, called = Waits(), set()

    def counted(place: str, call: Any) -> Any:
        watched = seen.watched(call)

        def within(*args: Any, **kwargs: Any) -> Any:
            called.add(place)
            return watched(*args, **kwargs)

        return within

    for owner, place in LOOPS[name]:
        monkeypatch.setattr(owner, place, counted(place, getattr(owner, place)))
    knobs = {"c_flag": {"alpha": 0.01}, "re_fed": {"epochs": 3}}.get(name, {})
    more = {"methods": {name: knobs}, "memory": {"capacity": 5}, "training__local_epochs": 2}
    simulate(tiny(**IMAGES, model={"name": "mnist_cnn"}, **more))
    assert seen.found == []
    assert called == {place for _, place in LOOPS[name]}


@pytest.mark.parametrize("name", METHODS)
def test_no_client_of_an_order_waits_until_its_sums_are_done(
    name: str, simulate: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, checks, sums, what is kept by client and records; of all clients of a host, in the host's own method."""
    seen, served = Waits(), []
    serve = seen.watched(ClientHost.serve)

    def counted(*given: Any) -> None:
        served.extend(client.id for client in given[1])
        serve(*given)

    monkeypatch.setattr(ClientHost, "serve", counted)
    simulate(tiny(**IMAGES, model={"name": "mnist_cnn"}, methods=METHODS[name]))
    assert seen.found == []
    assert len(served) >= 3 * 4  # three clients, two tasks of two rounds


def test_what_clients_send_is_read_once_when_all_is_there() -> None:
    """Tensors without values take part in everything until then; with values, it is one transfer and no more checks."""
    for device in ("meta", "cpu"):
        collected = Collection(2)
        reply = collected.reply
        for number in (1, 0):
            ones = torch.ones(3, device=device)
            deltas = [("", Delta(ones, torch.ones(0, device=device)))]
            integers = torch.tensor([number], device=device)
            collected.take_update(ClientUpdate(number, 0.5, f"client {number}", deltas, integers))
            collected.take_term(number, "m.mean", Term(2 * ones), "mean", 0.5, "")
            collected.take_term(number, "m.each", Term(ones * number), "by_client", 0.5, "")
            collected.take_records(number, {"loss": ones[0], "steps": 3})
        assert all(total.limbs is not None and total.limbs.device.type == device for total in reply.sums.values())
        if device == "meta":  # it was not read before, as torch says when it is read now
            with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
                collected.settle()
    seen = Waits()
    with seen.watching():
        collected.settle()
    assert [name for name in seen.found if name != "cpu"] == ["tolist"]
    assert len(seen.found) == 1 + 2  # and one copy of what each client sent by itself
    assert reply.sums["parameters"].mean().tolist() == [1.0] * 3
    assert reply.sums["m.mean"].mean().tolist() == [2.0] * 3
    assert reply.by_client["m.each"][1].tolist() == [1.0] * 3
    assert reply.integers is not None
    assert (reply.integers[0], reply.integers[1].tolist()) == (0, [0])
    assert reply.records == {"loss": {1: 1.0, 0: 1.0}, "steps": {1: 3.0, 0: 3.0}}


def test_the_first_client_that_diverges_is_named_though_others_came_after() -> None:
    collected = Collection(3)
    for number, value in enumerate((1.0, math.nan, math.inf)):
        deltas, integers = [("", Delta(torch.tensor([value]), torch.zeros(0)))], torch.zeros(0, dtype=torch.int64)
        collected.take_update(ClientUpdate(number, 0.3, f"client {number} diverged", deltas, integers))
    with pytest.raises(
        Diverged, match=r"^client 1 diverged, in the update of its parameters: found nan, allowed: finite"
    ):
        collected.settle()


WAITING: dict[str, Callable[[Any], object]] = {
    "a number": lambda step: step.loss.item(),
    "a copy": lambda step: step.loss.detach().cpu(),
    "a list": lambda step: step.y.tolist(),
    "a branch": lambda step: bool(step.loss < 0),
    "a comparison": lambda step: torch.equal(step.logits, step.logits + 1),
    "a mask": lambda step: step.y[step.y > 0],
}


@pytest.mark.parametrize("what", WAITING)
def test_a_step_that_waits_is_seen(
    what: str, waits: Waits, simulate: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = local_training.LocalLoop.step

    def printing(loop: Any, step: Any) -> None:
        original(loop, step)
        WAITING[what](step)

    monkeypatch.setattr(local_training.LocalLoop, "step", printing)
    simulate(tiny())
    assert waits.found


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, module: Any) -> Iterator[list[int]]:
    """The lengths of what a module sends to the device."""
    sizes: list[int] = []

    def counting(value: Any, device: object) -> Any:
        if isinstance(value, torch.Tensor):
            sizes.append(len(value))
        return value

    with monkeypatch.context() as patch:
        patch.setattr(module, "to_device", counting)
        yield sizes


def test_an_epoch_is_sent_at_once(host_of: Any, tiny: Any, quiet_torch: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """12 samples in batches of 4, two epochs: twice the rows and twice the draws of all 12, and nothing per batch."""
    config = tiny(
        dataset={**IMAGES["dataset"], "train": 36, "augment": ["flip"]},
        model={"name": "mnist_cnn"},
        training__local_epochs=2,
    )
    host = host_of(config)
    client = host.clients[0]
    with counted(monkeypatch, local_training) as sizes:
        client.begin_phase(RoundInfo(1, 0, 0.1), 1.0)
        client.local_training()
    assert sizes == [12, 12] * 2
