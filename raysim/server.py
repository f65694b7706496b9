"""The server: the global model, who takes part, and the methods' server halves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from raysim import seeding
from raysim.compatibility import methods_of
from raysim.config import Config
from raysim.errors import RunError
from raysim.federation import Federation
from raysim.messages import Delta, Post
from raysim.method import ServerHalf
from raysim.vector import Weights


class Server:
    """What server halves see and change.

    `parameters` [P] and `buffers` [B] are the global model, in the model's dtype, on the CPU; `round` counts from 1 and
    is 0 before the first; `task` counts from 0; `present` are the clients that have data now, `cohort` those that take
    part in this round, ascending; `shares` their weights, of sum 1.
    """

    def __init__(self, config: Config, federation: Federation, weights: Weights) -> None:
        self.config = config
        self.federation = federation
        self.parameters, self.buffers, self.integers = weights.parameters, weights.buffers, weights.integers
        self.version = 0
        self.round = 0
        self.task = 0
        self.cohort: tuple[int, ...] = ()
        self.shares: Mapping[int, float] = {}
        self.arrived: int | None = None
        self.records: dict[str, float] = {}
        self.halves: dict[str, ServerHalf] = {
            name: method.Server(name, method) for name, method in methods_of(config).items()
        }

    @property
    def present(self) -> tuple[int, ...]:
        """The ids of the clients that have data of this task."""
        return tuple(k for k, stream in enumerate(self.federation.streams) if stream.size(self.task))

    def model(self) -> Post:
        """Return the global model as the post that every client is sent."""
        return Post("model", self.version, Weights(self.parameters, self.buffers, self.integers))

    def sample(self) -> list[int]:
        """Draw this round's participants, uniformly and without replacement."""
        present, wanted = self.present, self.config.participation
        count = wanted.count if wanted.count is not None else max(1, round((wanted.fraction or 1.0) * len(present)))
        if count >= len(present):
            return list(present)
        draws = seeding.generator(self.config.seed, "cohort", self.round)
        return [int(k) for k in draws.choice(present, size=count, replace=False)]

    def gather(self, chosen: Sequence[int]) -> None:
        """Make these clients the cohort, with the shares that `aggregation.weights` gives them.

        Raises:
            RunError: one of them has no data now.
        """
        absent = sorted(set(chosen) - set(self.present))
        if absent:
            raise RunError(f"select chose the clients {absent}, allowed: those with data of this task, server.present")
        self.cohort = tuple(sorted(set(chosen)))
        self.shares = self.shares_of(self.cohort)
        self.arrived = None
        if self.config.aggregation.weights == "samples":
            self.arrived = sum(int(self.federation.streams[k].bounds[self.task + 1]) for k in self.cohort)

    def shares_of(self, clients: Sequence[int]) -> dict[int, float]:
        """Return these clients' weights among each other, of sum 1."""
        uniform = self.config.aggregation.weights == "uniform"
        sizes = {k: 1 if uniform else self.federation.streams[k].size(self.task) for k in clients}
        total = sum(sizes.values())
        return {k: size / total for k, size in sizes.items()}

    def lr(self, round_of_task: int) -> float:
        """Return the clients' learning rate in this round; `round_of_task` counts from 0."""
        training = self.config.training
        decay = training.lr_decay
        rounds = round_of_task if decay.restart else self.round - 1
        return training.optimizer.lr * float(decay.per_round**rounds) * float(decay.per_task**self.task)

    def apply(self, delta: Delta, integers: Tensor) -> None:
        """Add a delta to the model: a new version."""
        self.parameters = self.parameters + delta.parameters
        self.buffers = self.buffers + delta.buffers
        self.integers = integers.to(torch.int64)
        self.version += 1

    def record(self, name: str, value: Tensor | float) -> None:
        """Put a number of this round into rounds.jsonl and TensorBoard."""
        self.records[name] = float(value)
