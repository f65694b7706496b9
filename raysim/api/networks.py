"""Auxiliary networks, such as a generator or a discriminator, with their weights as flat vectors."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from raysim.models.flat import FlatModel, Weights
from raysim.system import seeding
from raysim.system.errors import ConfigError, RunError

Build = Callable[[], nn.Module]
"""Returns a new network. It may draw from torch's generators, which raysim seeds before the call."""


class Networks:
    """The server's auxiliary networks, by name. Their vectors are the state; the modules are built again.

    Args:
        seed: the run's seed.
        device: the device of the networks.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._seed, self._device = seed, device
        self._made: dict[str, FlatModel] = {}
        self._saved: dict[str, tuple[Tensor, ...]] = {}  # those of a checkpoint that were not asked for yet

    def make(self, name: str, build: Build) -> FlatModel:
        """Return the network of this name with the weights that it has; the first call builds it. Raises RunError."""
        if name not in self._made:
            self._made[name] = flatten(name, initial(self._seed, name, build), self._device)
            if name in self._saved:
                load(name, self._made[name], self._saved.pop(name))
        return self._made[name]

    def renew(self, name: str, build: Build) -> FlatModel:
        """Return a new network of this name. The caller has seeded torch's generators. Raises RunError."""
        self._saved.pop(name, None)
        self._made[name] = flatten(name, build(), self._device)
        return self._made[name]

    def drop(self, name: str) -> None:
        """Forget a network."""
        self._made.pop(name, None)
        self._saved.pop(name, None)

    def state(self) -> dict[str, tuple[Tensor, ...]]:
        """Return the vectors of all networks by name, for a checkpoint."""
        return {**self._saved, **{name: network.vectors for name, network in self._made.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the networks of a checkpoint. Each is built when a method next asks for it."""
        self._made, self._saved = {}, {name: tuple(vectors) for name, vectors in state.items()}


def initial(seed: int, name: str, build: Build) -> nn.Module:
    """Build the network of this name. Its initial weights are the same at the server and at all clients."""
    with seeding.torch_restored():
        seeding.seed_torch(seed, "network", name)
        return build()


def flatten(name: str, module: nn.Module, device: torch.device) -> FlatModel:
    """Return a network on a device as flat vectors. Raises RunError: it cannot be one."""
    if not isinstance(module, nn.Module):
        raise RunError(f"network {name}: found {type(module).__name__}, allowed: a function that returns a module")
    try:
        return FlatModel(module.to(device))
    except ConfigError as error:
        raise RunError(f"network {name}: {str(error).removeprefix('model: ')}") from None


def load(name: str, network: FlatModel, weights: Weights | tuple[Tensor, ...]) -> None:
    """Load weights into a network. Raises RunError: they are those of another network."""
    vectors = weights.vectors if isinstance(weights, Weights) else weights
    found, expected = _kinds(vectors), _kinds(network.vectors)
    if found != expected:
        raise RunError(f"network {name}: found weights of {', '.join(found)}, allowed: {', '.join(expected)}")
    for own, vector in zip(network.vectors, vectors, strict=True):
        own.copy_(vector)


def _kinds(vectors: Iterable[Tensor]) -> list[str]:
    return [f"{str(vector.dtype).removeprefix('torch.')} {[*vector.shape]}" for vector in vectors]
