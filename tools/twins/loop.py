"""The loop of LoRM's code (fed-mammoth) around a method: tasks, rounds, clients, evaluations, the accuracy matrix.

Salami et al., ICLR 2025, compare federated methods for new classes in this loop:

- classes come in their order, and each class of a task is divided over the clients by a Dirichlet distribution;
- in a round, each client trains for some epochs with a new AdamW. The loss is of the present task's logits;
- the server weighs clients by their samples;
- after each round, the model is tested on every task. A prediction is the largest logit of the classes so far.

These are raysim's: the network's initial weights, the clients' samples with the order of their batches, and draws of
new components and adapters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import cos, pi
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from raysim.config import load
from raysim.engine.events import Finished, RoundDone
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.models.prompts import CodaKeys
from raysim.models.vit import vit
from raysim.system.seeding import torch_untouched
from twins.problem import Problem, Round
from twins.vision import Named

BOUND = 1e-9  # what the difference of a weight does not exceed
CONFIG: Mapping[str, Any] = {
    "name": "loop",
    "seed": 5,
    "dataset": {"name": "digits", "train_samples": 800},
    "scenario": {"kind": "class_incremental", "tasks": 5},
    "partition": {"kind": "dirichlet", "alpha": 0.5, "balanced": False, "min_samples": 6},
    "clients": {"count": 5},
    "model": {"name": "twins.loop:trunk"},
    "training": {
        "rounds_per_task": 3,
        "local_epochs": 2,
        "batch_size": 16,
        "logits": "task",
        "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.0},
    },
    "aggregation": {"weights": "samples"},
    "evaluation": {"every_rounds": 1},
}
SHORT: Mapping[str, Any] = {
    "dataset.train_samples": 200,
    "clients.count": 3,
    "training.rounds_per_task": 2,
    "training.local_epochs": 1,
}
"""Changes of the config that make a run short."""


def trunk(shape: tuple[int, ...], classes: int, *, prompts: CodaKeys | None = None) -> nn.Module:
    """Return raysim's vision transformer in float64, with random weights of all sizes in place of pretrained ones."""
    network = vit(
        shape, classes, width=16, depth=2, heads=2, mlp_ratio=2, patch=4, input_size=None, prompts=prompts
    ).double()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if not name.startswith(("head.", "prompts.")):
                parameter.add_(0.15 * torch.randn_like(parameter))
    return network


@dataclass(frozen=True)
class Tested:
    """What an evaluation sees: the logits [n, classes] of images, and the weights by name."""

    logits: Callable[[Tensor], Tensor]
    weights: Named


Rounds = Callable[..., Iterator[Tested]]
"""A method by its formulas: it yields after each round what is tested."""

Loss = Callable[[Named, Tensor, Tensor], Tensor]
"""A client's loss of trained parameters on images with labels."""


class AdamW:
    """Adam (Kingma and Ba, ICLR 2015, algorithm 1), with the decoupled decay of AdamW or the gradient's."""

    def __init__(self, rates: Mapping[str, float], decay: float = 0.0, decoupled: bool = True) -> None:
        self.rates, self.decay, self.decoupled, self.t = rates, decay, decoupled, 0
        self.m: dict[str, Tensor] = {}
        self.v: dict[str, Tensor] = {}

    def step(self, w: Named, g: Named) -> dict[str, Tensor]:
        """Return w after a step."""
        self.t += 1
        after = {}
        for name, value in w.items():
            slope, rate = g[name], self.rates[name]
            if self.decoupled:
                value = value - rate * self.decay * value
            else:
                slope = slope + self.decay * value
            self.m[name] = 0.9 * self.m.get(name, 0 * slope) + 0.1 * slope
            self.v[name] = 0.999 * self.v.get(name, 0 * slope) + 0.001 * slope.square()
            first, second = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.999**self.t)
            after[name] = value - rate * first / (second.sqrt() + 1e-8)
        return after


def train(p: Problem, client: int, r: Round, w: Named, loss: Loss, adam: AdamW) -> Named:
    """Return the parameters that a client has after its epochs. Only those of w are trained."""
    x, y = samples(p, client, r.task)
    for batch in p.orders(client, len(y)):
        given = {name: value.detach().requires_grad_() for name, value in w.items()}
        slopes = torch.autograd.grad(loss(given, x[batch], y[batch]), [*given.values()])
        w = adam.step({name: value.detach() for name, value in given.items()}, dict(zip(given, slopes, strict=True)))
    return w


def samples(p: Problem, client: int, task: int) -> tuple[Tensor, Tensor]:
    """Return a client's images [n, 1, 8, 8] and labels of a task."""
    return images(p.federation.dataset.train, p.federation.streams[client].rows[task])


def images(split: Any, rows: Any) -> tuple[Tensor, Tensor]:
    """Return images with pixels from 0 to 1, and labels. Pixels are rounded to float32, as raysim has them."""
    return (torch.from_numpy(split.x[rows]).float() / 255).double(), torch.from_numpy(split.y[rows])


def of_task(p: Problem, r: Round, z: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy over the logits of the present task's classes."""
    labels = [*p.federation.tasks[r.task].classes]
    return cross_entropy(z[:, labels], torch.tensor([labels.index(label) for label in y.tolist()]))


def weighted(p: Problem, r: Round, ends: list[Named]) -> dict[str, Tensor]:
    """Return the mean of the clients' parameters, with weights in proportion to their samples."""
    counts = [len(samples(p, k, r.task)[1]) for k in r.cohort]
    return {
        name: sum((n / sum(counts) * end[name] for n, end in zip(counts, ends, strict=True)), torch.zeros(()))
        for name in ends[0]
    }


def cosine(p: Problem, r: Round) -> float:
    """Return the factor (1 + cos(pi e / R)) / 2 of a task's round e of R, from 0."""
    rounds = p.config.training.rounds_per_task
    assert rounds is not None
    return (1 + cos(pi * ((r.number - 1) % rounds) / rounds)) / 2


def whole_run(
    methods: Mapping[str, Any], changes: Mapping[str, Any]
) -> tuple[Problem, Mapping[str, Tensor], list[list[float]]]:
    """Run raysim in this process. Return the problem, the final weights, and the accuracies by round and task."""
    config = load(CONFIG, {**changes, "methods": methods})
    with torch_untouched():
        federation = build_federation(config)
        events = [*Simulation(config, federation, LocalRunner(config, federation)).events()]
        first = build_model(config, federation.shape, federation.classes)
    named = {name: p.detach() for name, p in first.named_parameters()}
    done = [event for event in events if isinstance(event, RoundDone)]
    (end,) = (event for event in events if isinstance(event, Finished))
    problem = Problem(config, federation, tuple(tuple(event.cohort) for event in done), torch.zeros(0), named)
    return problem, end.state, [[*(event.evaluation or {})["class_il_seen"]] for event in done]


def accuracies(p: Problem, r: Round, tested: Tested) -> list[float]:
    """Return the accuracy on each task's test images. A prediction is the largest logit of the classes so far."""
    seen, found = p.earlier(r.task + 1), []
    for task in p.federation.tasks:
        x, y = images(p.federation.dataset.test, task.test)
        with torch.no_grad():
            best = tested.logits(x)[:, seen].argmax(1)
        found.append(int((torch.tensor(seen)[best] == y).sum()) / len(y))
    return found


@dataclass(frozen=True)
class Loop:
    """A method in the loop, and its rounds by its formulas."""

    name: str
    methods: Mapping[str, Any]
    rounds: Rounds
    given: Mapping[str, Any] = field(default_factory=dict)  # what the rounds take besides the problem
    changes: Mapping[str, Any] = field(default_factory=dict)

    def compare(self, short: bool = False, methods: Mapping[str, Any] | None = None) -> Compared:
        """Compare raysim's run with the reference. With other `methods`, raysim has these."""
        torch.set_num_threads(1)
        methods = self.methods if methods is None else methods
        problem, state, found = whole_run(methods, {**self.changes, **(SHORT if short else {})})
        tested = [*self.rounds(problem, **self.given)]
        wanted = [accuracies(problem, r, one) for r, one in zip(problem.rounds(), tested, strict=True)]
        far = max(float((state[name] - value).abs().max()) for name, value in tested[-1].weights.items())
        wrong = sum(a != b for row, other in zip(found, wanted, strict=True) for a, b in zip(row, other, strict=True))
        return Compared(far, wrong, wanted)


@dataclass(frozen=True)
class Compared:
    """How far raysim is from a reference.

    Attributes:
        difference: the largest of any weight after the last round.
        wrong: the number of accuracies that are not equal, of any task after any round.
        accuracies: the reference's, by round and task.
    """

    difference: float
    wrong: int
    accuracies: list[list[float]]

    @property
    def equal(self) -> str:
        """How many accuracies are equal, of how many."""
        of_all = sum(map(len, self.accuracies))
        return f"{of_all - self.wrong} of {of_all}"
