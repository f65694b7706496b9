"""One client of a block, as the methods' hooks see it under torch.vmap: its tensors are slices of stacked ones."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from raysim.api.client import Client
from raysim.api.messages import Broadcast, Delta
from raysim.api.method import ClientHalf
from raysim.engine.hosted_client import HostedClient
from raysim.models.flat import FlatModel
from raysim.system.errors import RunError


@dataclass
class Tensors:
    """The tensors of a program's clients, each [n, ...], and those that the clients share."""

    clients: dict[str, Any]
    """Of each client: parameters, buffers, integers, x, y, key, and, if needed, received, kept_out and halves."""
    broadcasts: Mapping[str, Broadcast] = field(default_factory=dict)


class Hidden:
    """What no hook can read under vmap, such as a client's data. Any use is an error."""

    def __init__(self, what: str) -> None:
        object.__setattr__(self, "_what", what)

    def _refuse(self, *_: Any) -> NoReturn:
        raise RunError(f"it reads {object.__getattribute__(self, '_what')}, which differs from client to client")

    __getattr__ = __setattr__ = __bool__ = __len__ = __iter__ = __index__ = __float__ = __eq__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class OneClient(Client):
    """A client under vmap, with its model, learning rate, loss and broadcasts.

    Args:
        like: a client of the block; all of the block have its learning rate and round.
        tensors: this client's tensors, as in `Tensors`.
        broadcasts: what the server has sent.
    """

    def __init__(self, like: HostedClient, tensors: Mapping[str, Any], broadcasts: Mapping[str, Broadcast]) -> None:
        model = copy.copy(like.model)
        model.parameters, model.buffers, model.integers = (tensors[k] for k in ("parameters", "buffers", "integers"))
        model.forward = lambda x: FlatModel.call_with(model, x, *model.vectors)
        hidden: Any = Hidden("the client's data")
        shared = replace(like.shared, model=model, broadcasts=broadcasts)
        super().__init__(-1, hidden, hidden, hidden, shared)
        self.round, self.lr = like.round, like.lr
        self._received = tensors.get("received")
        self._kept_out = tensors.get("kept_out")

    def generator(self, purpose: str) -> np.random.Generator:
        """Raise RunError: each client draws its own numbers, so a method that draws trains one client at a time."""
        raise RunError("it draws random numbers")

    def rng_scope(self, method: str) -> AbstractContextManager[None]:
        """Raise RunError, as `generator`."""
        raise RunError("it draws random numbers")

    def local_training(self) -> Delta:
        """Raise RunError: the clients of a block train together."""
        raise RunError("it trains the client")

    def epoch(self, positions: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Raise RunError, as `local_training`."""
        raise RunError("it trains the client")


def stack_halves(clients: Sequence[HostedClient], names: Sequence[str]) -> dict[str, dict[str, Tensor]]:
    """Return the tensors of the clients' halves, stacked: half -> attribute -> [n, ...]."""
    stacked: dict[str, dict[str, Tensor]] = {}
    for name in names:
        values = [vars(client.halves[name]) for client in clients]
        stacked[name] = {
            key: torch.stack([value[key] for value in values])
            for key, first in values[0].items()
            if isinstance(first, Tensor)
            and all(isinstance(value.get(key), Tensor) and value[key].shape == first.shape for value in values)
        }
    return stacked


def make_halves(clients: Sequence[HostedClient], names: Sequence[str]) -> dict[str, ClientHalf]:
    """Return halves for `with_tensors`. What differs between the clients is hidden."""
    halves = {}
    for name in names:
        halves[name] = half = copy.copy(clients[0].halves[name])
        for key, first in vars(half).items():
            same = isinstance(first, int | float | str | None) and all(
                vars(client.halves[name]).get(key) == first for client in clients
            )
            if key not in half.transient and not same:
                setattr(half, key, Hidden(f"{name}.{key}"))
    return halves


def with_tensors(half: ClientHalf, tensors: Mapping[str, Tensor]) -> ClientHalf:
    """Return a copy of a half with one client's tensors."""
    own = copy.copy(half)
    vars(own).update(tensors)
    return own
