"""The local loop never waits for a GPU: no Python number or branch is made of what would be there.

On a GPU all floating numbers are on the device, and positions and draws on the CPU; so what would wait can be seen on a
CPU too: a number read out of a floating tensor, or one of them indexed by a mask, whose count a GPU must be asked for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from raysim import training
from raysim.client import Phase

IMAGES = {"dataset": {"name": "synthetic", "classes": 4, "shape": [1, 28, 28], "train": 48, "test": 20}}
METHODS: dict[str, dict[str, Any]] = {
    "fedprox": {"fedprox": {}},
    "scaffold": {"scaffold": {}},
    "a_gem": {"a_gem": {}},
    "er": {"er": {}},
    "der": {"der": {"beta": 0.5}},
    "fed_a_gem": {"fed_a_gem": {}},
    "special_c": {"special_c": {"prox_every": "step"}},
}


class Waits(TorchDispatchMode):
    """Notes the operations for which a GPU would have to be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        reads = name in ("_local_scalar_dense", "nonzero") and args[0].is_floating_point()
        masks = name in ("index", "index_put_", "index_put") and args[0].is_floating_point()
        if reads or (masks and any(i is not None and i.dtype == torch.bool for i in args[1])):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """What would wait in local training, as long as the test lasts."""
    seen, original = Waits(), training.local_training

    def watched(client: Any) -> Any:
        with seen:
            return original(client)

    monkeypatch.setattr(training, "local_training", watched)
    return seen


@pytest.mark.parametrize("name", METHODS)
def test_no_step_waits(name: str, waits: Waits, simulate: Any, tiny: Any) -> None:
    clipped = {} if name == "scaffold" else {"training__clip_norm": 1.0}
    config = tiny(**IMAGES, model={"name": "mnist_cnn"}, methods=METHODS[name], dataset__augment=["crop"], **clipped)
    simulate(config)
    assert waits.found == []


def test_a_step_that_waits_is_seen(waits: Waits, simulate: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = training._Loop.step

    def printing(loop: Any, step: Any) -> None:
        original(loop, step)
        step.loss.item()

    monkeypatch.setattr(training._Loop, "step", printing)
    simulate(tiny())
    assert set(waits.found) == {"_local_scalar_dense"}


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, module: Any) -> Iterator[list[int]]:
    """The lengths of what a module sends to the device."""
    sizes: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(module, "sent", lambda tensor, device: sizes.append(len(tensor)) or tensor)
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
    with counted(monkeypatch, training) as sizes:
        client.enter(Phase(1, 0, 0.1), 1.0)
        client.local_training()
    assert sizes == [12, 12] * 2
