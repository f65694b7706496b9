"""A client between its phases: what its stream and memory refer to, and nothing as large as the model."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from raysim.api.client import Client
from raysim.engine.host import ClientHost

SHARED = ("shared", "model", "data", "knobs", "stream", "calls")  # what a client refers to and does not own


def tensors(found: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield every tensor that an object owns, once."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, dict):
        for part in found.values():
            yield from tensors(part, seen)
    elif isinstance(found, list | tuple):
        for part in found:
            yield from tensors(part, seen)
    elif hasattr(found, "__dict__"):
        for name, part in vars(found).items():
            if name not in SHARED:
                yield from tensors(part, seen)


def held(client: Client) -> int:
    """Bytes of the memory that a client's tensors keep alive."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors(client, set())}
    return sum(storages.values())


@pytest.mark.parametrize("width", [5, 5000])
def test_a_client_holds_its_positions_its_memory_and_what_its_methods_keep(
    width: int, tiny: Any, monkeypatch: pytest.MonkeyPatch, simulate: Any
) -> None:
    """After two tasks of 12 samples: positions that arrived and that are finished, 12 each of int64; a flag for each of
    the 24 that says whether it was offered; a memory of 10 positions with 4 logits of float32. SCAFFOLD's variate is as
    long as the model: 6 w + w + 4 w + 4 parameters in an MLP of width w.
    """
    hosts: list[ClientHost] = []
    original = ClientHost.__init__
    monkeypatch.setattr(ClientHost, "__init__", lambda self, *a: (hosts.append(self), original(self, *a))[1])
    methods = {"der": {}, "a_gem": {}, "fed_a_gem": {}, "fedprox": {}}
    positions, flags, memory = 2 * 12 * 8, 24, 10 * (8 + 4 * 4)
    small = {"model__hidden": [width], "training__optimizer__lr": 1e-4}
    simulate(tiny(methods=methods, memory__capacity=10, **small))
    assert {held(client) for client in hosts[-1].clients.values()} == {positions + flags + memory}

    simulate(tiny(methods={"scaffold": {}}, **small))
    variate = 4 * (6 * width + width + 4 * width + 4)
    assert {held(client) for client in hosts[-1].clients.values()} == {positions + variate}
