"""The server: the global model, who takes part, and the methods' server halves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from raysim.api.messages import Delta, Post
from raysim.api.method import ServerHalf
from raysim.config import Config
from raysim.config.lookup import resolve
from raysim.config.schema import LARGEST_FLOAT32
from raysim.engine.compatibility import methods_of
from raysim.federation.federation import Federation
from raysim.models.flat import Weights
from raysim.system import seeding
from raysim.system.errors import RunError
from raysim.system.state import half_state, restore_half

LASTING = ("parameters", "buffers", "integers", "version", "round", "cohort", "shares")


class Server:
    """What server halves see and change.

    `parameters` [P] and `buffers` [B] are the global model, in the model's dtype, on the CPU; `round` counts from 1 and
    is 0 before the first; `cohort` are the clients that take part in this round, ascending; `shares` their weights, of
    sum 1.
    """

    def __init__(self, config: Config, federation: Federation, weights: Weights) -> None:
        self.config = config
        self.federation = federation
        self.parameters, self.buffers, self.integers = weights.parameters, weights.buffers, weights.integers
        self.version = 0
        self.round = 0
        self.cohort: tuple[int, ...] = ()
        self.shares: Mapping[int, float] = {}
        self.records: dict[str, float] = {}
        self.halves: dict[str, ServerHalf] = {
            name: method.Server(name, method) for name, method in methods_of(config).items()
        }

    @property
    def task(self) -> int:
        """The task of this round, from 0; where clients are at different ones, the usual."""
        calendar = self.federation.calendar
        return min(calendar.row(self.round), len(calendar.rows) - 1)

    @property
    def present(self) -> tuple[int, ...]:
        """The ids of the clients that have data in this round, ascending."""
        return self.federation.calendar.present(max(self.round, 1))

    def window(self, client: int) -> int:
        """Return the window of its stream that a client has in this round.

        Raises:
            RunError: it is not there.
        """
        window = self.federation.calendar.window(client, max(self.round, 1))
        if window is None:
            raise RunError(f"client {client} was asked for something, allowed: those with data now, server.present")
        return window

    def size(self, client: int, round: int | None = None) -> int:
        """Return how many samples a client has in a round, by default this one."""
        return self.federation.calendar.size(client, round or max(self.round, 1))

    def tasks(self, client: int, round: int | None = None) -> list[int]:
        """Return the tasks of the samples that a client has in a round, by default this one."""
        return self.federation.calendar.tasks(client, round or max(self.round, 1))

    def arrived(self, client: int, round: int | None = None) -> int:
        """Return how many samples have reached a client by a round, by default this one."""
        window = self.federation.calendar.window(client, round or max(self.round, 1))
        return 0 if window is None else self.federation.streams[client].end(window)

    def model(self) -> Post:
        """Return the global model as the post that every client is sent."""
        return Post("model", self.version, Weights(self.parameters, self.buffers, self.integers))

    def sample(self) -> list[int]:
        """Draw this round's participants.

        Raises:
            RunError: the sampler chose others than those with data now.
        """
        present, wanted = self.present, self.config.participation
        count = wanted.count if wanted.count is not None else max(1, round((wanted.fraction or 1.0) * len(present)))
        if count >= len(present):
            return list(present)
        draws = seeding.generator(self.config.seed, "cohort", self.round)
        return [int(k) for k in resolve("sampler", wanted.sampler)(self, count, draws)]

    def gather(self, chosen: Sequence[int]) -> None:
        """Make these clients the cohort, with the shares that `aggregation.weights` gives them.

        Raises:
            RunError: one of them has no data now.
        """
        absent = sorted(set(chosen) - set(self.present))
        if absent:
            raise RunError(f"select chose the clients {absent}, allowed: those with data now, server.present")
        self.cohort = tuple(sorted(set(chosen)))
        self.shares = self.shares_of(self.cohort)

    def shares_of(self, clients: Sequence[int]) -> dict[int, float]:
        """Return these clients' weights among each other, of sum 1."""
        uniform = self.config.aggregation.weights == "uniform"
        sizes = {k: 1 if uniform else self.size(k) for k in clients}
        total = sum(sizes.values())
        return {k: size / total for k, size in sizes.items()}

    @property
    def lr(self) -> float:
        """The clients' learning rate in this round.

        Raises:
            RunError: it is larger than any number in single precision.
        """
        training, rows = self.config.training, self.federation.calendar.rows
        decay, task, rounds = training.lr_decay, self.task, self.round - 1
        if decay.restart and task:
            rounds -= rows[task - 1]
        try:
            lr = training.optimizer.lr * float(decay.per_round**rounds) * float(decay.per_task**task)
        except OverflowError:
            lr = math.inf
        if lr > LARGEST_FLOAT32:
            raise RunError(
                f"training.lr_decay: the learning rate of round {self.round} is over {LARGEST_FLOAT32:.2g}; lower "
                "per_round or per_task"
            )
        return lr

    def apply(self, delta: Delta, integers: Tensor) -> None:
        """Add a delta to the model: a new version."""
        self.parameters = self.parameters + delta.parameters
        self.buffers = self.buffers + delta.buffers
        self.integers = integers.to(torch.int64)
        self.version += 1

    def state(self) -> dict[str, Any]:
        """Return what lasts between rounds, as a checkpoint keeps it. Raises RunError."""
        return {
            "lasting": {name: getattr(self, name) for name in LASTING},
            "halves": {name: half_state(half) for name, half in self.halves.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be as the server of the same run was between two rounds."""
        vars(self).update(state["lasting"])
        for name, half in self.halves.items():
            restore_half(half, state["halves"][name])

    def record(self, name: str, value: Tensor | float) -> None:
        """Put a number of this round into rounds.jsonl and TensorBoard."""
        self.records[name] = float(value)
