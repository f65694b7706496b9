"""The small federation of the twins, and its parts that a reference needs: samples, batches and cohorts.

The samples, their order and the cohorts are raysim's, by its documented random streams. All that a method computes is
written in the references.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from raysim.config import Config, load
from raysim.engine.events import Finished, RoundDone
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import build_model
from raysim.system.seeding import generator, torch_untouched
from twins.network import logits

LR = 0.1
CONFIG: Mapping[str, Any] = {
    "name": "twin",
    "seed": 3,
    "dataset": {"name": "synthetic", "classes": 6, "shape": [8], "train": 64, "test": 12},
    "scenario": {"kind": "class_incremental", "tasks": 3},
    "partition": {"kind": "dirichlet", "alpha": 1.0, "balanced": False, "min_samples": 4},
    "clients": {"count": 4},
    "model": {"name": "twins.network:network"},
    "training": {"rounds_per_task": 2, "local_epochs": 2, "batch_size": 4, "optimizer": {"lr": LR}},
}
DOMAINS: Mapping[str, Any] = {"scenario": {"kind": "domain_incremental", "tasks": 3, "shift": "permutation"}}
PARTIAL: Mapping[str, Any] = {"participation.count": 3}

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A client's loss of its parameters [P] on x [n, 8] with labels y [n]."""


@dataclass(frozen=True)
class Round:
    """A round: its number from 1, its task from 0, whether it begins or ends that task, and its clients."""

    number: int
    task: int
    begins: bool
    ends: bool
    cohort: tuple[int, ...]


@dataclass
class Problem:
    """A federation, its cohorts in every round, and the initial parameters: [P], and by name."""

    config: Config
    federation: Federation
    cohorts: tuple[tuple[int, ...], ...]
    start: Tensor
    named: Mapping[str, Tensor]
    trained: Counter[int] = field(default_factory=Counter)  # how often each client has trained

    @property
    def clients(self) -> range:
        """Return all clients."""
        return range(self.config.clients.count)

    def rounds(self) -> Iterator[Round]:
        """Yield the rounds in order."""
        per_task = self.config.training.rounds_per_task
        assert per_task is not None
        for number, cohort in enumerate(self.cohorts):
            task, place = divmod(number, per_task)
            yield Round(number + 1, task, place == 0, place == per_task - 1, cohort)

    def samples(self, client: int, task: int) -> tuple[Tensor, Tensor]:
        """Return a client's samples of a task: x [n, 8] and y [n]."""
        rows, pixels = self.federation.streams[client].rows[task], self.federation.tasks[task].pixels
        x, y = (torch.from_numpy(np.asarray(part[rows])) for part in self._arrays)
        return (x if pixels is None else x[:, torch.as_tensor(np.asarray(pixels))]), y

    def orders(self, client: int, count: int) -> Iterator[Tensor]:
        """Yield the batches of a client's next local training on `count` samples, as positions."""
        training = self.config.training
        self.trained[client] += 1
        draws = self.draws(client, "batches")
        for _ in range(training.local_epochs or 0):
            yield from torch.from_numpy(draws.permutation(count)).split(training.batch_size)

    def draws(self, client: int, purpose: str, request: int = 0) -> np.random.Generator:
        """Return a client's random stream in its present local training, or in a request after it."""
        return generator(self.config.seed, client, self.trained[client], request, purpose)

    def train(self, client: int, task: int, w: Tensor, loss: Loss) -> Tensor:
        """Return the parameters after a local training by SGD from w."""
        x, y = self.samples(client, task)
        for batch in self.orders(client, len(y)):
            w = w - LR * slope(loss, w, x[batch], y[batch])
        return w

    def earlier(self, task: int) -> list[int]:
        """Return the classes of all tasks before this one."""
        return sorted({label for before in self.federation.tasks[:task] for label in before.classes})

    @property
    def _arrays(self) -> tuple[Any, Any]:
        train = self.federation.dataset.train
        return np.asarray(train.x, np.float64), np.asarray(train.y, np.int64)


def plain_loss(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy over all classes."""
    return cross_entropy(logits(w, x), y)


def slope(loss: Loss, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient [P] at w of a loss on x [n, 8] with labels y [n]."""
    w = w.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(w, x, y), w)
    return gradient


def mean(vectors: list[Tensor]) -> Tensor:
    """Return the mean of some vectors."""
    return torch.stack(vectors).mean(0)


def run_raysim(methods: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[Problem, Tensor, LocalRunner]:
    """Run raysim's method in this process. Return the problem, the final parameters [P], and what holds the clients."""
    config = load(CONFIG, {**changes, "methods": methods})
    with torch_untouched():
        federation = build_federation(config)
        runner = LocalRunner(config, federation)
        events = list(Simulation(config, federation, runner).events())
        first = build_model(config, federation.shape, federation.classes)
    named = {name: p.detach() for name, p in first.named_parameters()}
    start = torch.cat([p.reshape(-1) for p in named.values()])
    cohorts = tuple(tuple(event.cohort) for event in events if isinstance(event, RoundDone))
    (end,) = (event for event in events if isinstance(event, Finished))
    final = torch.cat([value.reshape(-1) for value in end.state.values()])
    return Problem(config, federation, cohorts, start, named), final, runner
