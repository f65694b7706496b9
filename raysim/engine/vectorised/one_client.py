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
from raysim.api.networks import Build
from raysim.engine.hosted_client import HostedClient
from raysim.models.flat import FlatModel, Weights
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

    __getattr__ = __setattr__ = __bool__ = __len__ = __iter__ = __index__ = __float__ = __getitem__ = __eq__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _refuse
    __neg__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse


HIDDEN: Any = Hidden("the client's data")
OF_ONE = ("id", "window", "arrived", "finished", "phases", "round", "share", "steps")


class OneClient(Client):
    """A client under vmap, with its model, learning rate, loss and broadcasts. All else is hidden.

    Args:
        like: a client of the block; all of the block have its learning rate.
        tensors: this client's tensors, as in `Tensors`.
        broadcasts: what the server has sent.
    """

    def __init__(self, like: HostedClient, tensors: Mapping[str, Any], broadcasts: Mapping[str, Broadcast]) -> None:
        model, hidden = copy.copy(like.model), HIDDEN
        vectors = [tensors[name] for name in ("parameters", "buffers", "integers")]
        model.parameters, model.buffers, model.integers = (vector.detach() for vector in vectors)
        model.forward = lambda x: like.model.call_with(x, *vectors)
        vars(model).update(module=hidden, _trained=hidden)
        super().__init__(-1, hidden, hidden, hidden, replace(like.shared, model=model, broadcasts=broadcasts))
        vars(self).update(dict.fromkeys(OF_ONE, hidden))
        self.lr = like.lr
        self.received = tensors["received"] if "received" in tensors else broadcasts["model"].value.parameters
        self.kept_out = tensors.get("kept_out")

    def record(self, name: str, value: Tensor | float) -> None:
        """Raise RunError: a hook under vmap keeps nothing."""
        raise RunError("it records a number")

    def fixed_generator(self, *name: int | str) -> np.random.Generator:
        """Raise RunError, as `generator`."""
        raise RunError("it draws random numbers")

    def generator(self, purpose: str) -> np.random.Generator:
        """Raise RunError: each client draws its own numbers, so a method that draws trains one client at a time."""
        raise RunError("it draws random numbers")

    def rng_scope(self, method: str) -> AbstractContextManager[None]:
        """Raise RunError, as `generator`."""
        raise RunError("it draws random numbers")

    def auxiliary_network(self, name: str, build: Build, weights: Weights | None = None) -> FlatModel:
        """Raise RunError: a network of the client's own is no part of the program."""
        raise RunError("it uses an auxiliary network")

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
        stacked[name] = {}
        for key, values in _attributes(clients, name).items():
            tensors = [value for value in values if isinstance(value, Tensor)]
            if len(tensors) == len(values) and len({value.shape for value in tensors}) == 1:
                stacked[name][key] = torch.stack(tensors)
    return stacked


def make_halves(clients: Sequence[HostedClient], names: Sequence[str]) -> dict[str, ClientHalf]:
    """Return halves for `with_tensors`. What differs between the clients is hidden."""
    halves = {}
    for name in names:
        halves[name] = half = copy.copy(clients[0].halves[name])
        for key, values in _attributes(clients, name).items():
            same = all(isinstance(value, int | float | str | None) and value == values[0] for value in values)
            setattr(half, key, values[0] if same else Hidden(f"{name}.{key}"))
    return halves


def _attributes(clients: Sequence[HostedClient], name: str) -> dict[str, list[Any]]:
    """Return the attributes of the clients' halves, which some may not have set yet: attribute -> values."""
    halves = [client.halves[name] for client in clients]
    keys = {key: None for half in halves for key in vars(half) if key not in half.transient}
    return {key: [getattr(half, key, None) for half in halves] for key in keys}


def with_tensors(half: ClientHalf, tensors: Mapping[str, Tensor]) -> ClientHalf:
    """Return a copy of a half with one client's tensors."""
    own = copy.copy(half)
    vars(own).update(tensors)
    return own
