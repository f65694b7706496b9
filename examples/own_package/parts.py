"""One component of each kind: keyword-only parameters are its keys, and `doc` in an annotation says what one is.

raysim run examples/own_package/run.yaml
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Gt, Lt, doc
from torch import Tensor
from torch.nn import functional

from raysim.api import Server
from raysim.callbacks import Callback, RunView
from raysim.data.dataset import Dataset
from raysim.data.scenario import Task
from raysim.engine.events import RoundDone
from raysim.federation.availability import Progress
from raysim.memory import Policy
from raysim.objectives import Metric, Objective

Ints = np.ndarray[Any, np.dtype[np.int64]]


def rolled(dataset: Dataset, tasks: int, generator: np.random.Generator, *, by: int = 2) -> list[Task]:
    """Domain-incremental: every task shows the images rolled further sideways."""
    numbers = np.arange(np.prod(dataset.shape)).reshape(dataset.shape)  # of the features
    train, test = np.arange(len(dataset.train)), np.arange(len(dataset.test))
    classes = tuple(range(dataset.classes))
    return [
        Task(f"rolled by {by * task}", classes, np.roll(numbers, by * task, axis=-1).reshape(-1), train, test)
        for task in range(tasks)
    ]


def power_law(
    labels: Ints,
    clients: int,
    generator: np.random.Generator,
    *,
    exponent: Annotated[float, Ge(0), doc("client k has a share in proportion to (k + 1)^-exponent")] = 1.0,
) -> list[Ints]:
    """Random samples, of sizes that follow a power law; the labels play no part."""
    shares = (np.arange(clients) + 1.0) ** -exponent
    ends = np.round(np.cumsum(shares) / shares.sum() * len(labels)).astype(int)
    return np.split(generator.permutation(len(labels)), ends[:-1])


def darker(
    images: Tensor,
    numbers: Tensor,
    *,
    most: Annotated[float, Gt(0), Lt(1), doc("the largest part of the light that is taken away")] = 0.5,
) -> Tensor:
    """Images [B, C, H, W] of uint8, each darkened by a different factor."""
    kept = 1 - most * numbers / 2**53  # numbers / 2^53 is uniform on [0, 1)
    return (images * kept.view(-1, 1, 1, 1)).to(images.dtype)


class Lion:
    """Lion: the sign of a momentum (Chen et al., NeurIPS 2023)."""

    default_lr = 1e-3  # of the key lr, which every optimizer has; each step receives the rate
    vectors = 1, 2  # of the parameters' length: it keeps one, and a step takes two more

    def __init__(
        self,
        *,
        betas: Annotated[tuple[float, float], doc("what the step and the momentum keep of the past")] = (0.9, 0.99),
    ) -> None:
        self.betas = betas
        self.momentum: Tensor | None = None

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Change the parameters [P] in place; lr is the round's."""
        past = torch.zeros_like(gradient) if self.momentum is None else self.momentum
        parameters.sub_(torch.lerp(gradient, past, self.betas[0]).sign(), alpha=lr)
        self.momentum = torch.lerp(gradient, past, self.betas[1])


def staircase(
    lr: float,
    progress: Progress,
    *,
    every: Annotated[int, Ge(1), doc("rounds of a step of the stair")] = 2,
    factor: Annotated[float, Gt(0), doc("what the learning rate is multiplied by at each")] = 0.5,
) -> float:
    """The learning rate falls by a factor after every few rounds of a task."""
    return float(lr * factor ** ((progress.round - 1 - progress.began) // every))


class EveryNth(Policy):
    """The latest of every n-th sample."""

    def __init__(
        self,
        capacity: int,
        *,
        n: Annotated[int, Ge(1), doc("of so many samples one is kept")] = 3,
    ) -> None:
        super().__init__(capacity)
        self.n = n

    def choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return a slot for each sample, or -1; `self.seen` samples have been offered before."""
        number = self.seen + np.arange(len(labels))
        return np.where(number % self.n == 0, number // self.n % self.capacity, -1)


def largest(server: Server, count: int, generator: np.random.Generator) -> Sequence[int]:
    """The clients with the most samples."""
    return sorted(server.present, key=lambda client: (-server.size(client), client))[:count]


class Brier(Objective):
    """One label for each sample: cross-entropy with smoothed labels; the Brier score, lower is better (Brier, 1950)."""

    metric = Metric("Brier score", higher_is_better=False, range=(0.0, 2.0))
    classes: ClassVar[bool] = True  # targets are labels, int64 [n]

    def __init__(
        self,
        *,
        smoothing: Annotated[float, Ge(0), Lt(1), doc("the part of a label that all classes share")] = 0.1,
    ) -> None:
        self.smoothing = smoothing

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of logits [n, classes]."""
        return functional.cross_entropy(outputs, targets, label_smoothing=self.smoothing)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the classes' probabilities [n, classes]."""
        return outputs.softmax(1)

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return the squared distance of the probabilities to the label's, [n, 1]."""
        wanted = functional.one_hot(targets, predictions.shape[1])
        return (predictions - wanted).square().sum(1, keepdim=True)

    def value(self, sums: Sequence[Fraction], samples: int) -> Fraction:
        """Return the mean over the samples of a task, from their exact sum."""
        return sums[0] / samples


class Gap(Callback):
    """Records how far apart the accuracies on the tasks so far are, and ends the run where they are too far."""

    def __init__(
        self,
        *,
        most: Annotated[float, Gt(0), doc("the largest gap that the run goes on with")] = 1.0,
    ) -> None:
        self.most = most

    def on_evaluation(self, run: RunView, done: RoundDone) -> None:
        """Look at each protocol's accuracies."""
        for protocol, accuracies in (done.evaluation or {}).items():
            seen = accuracies[: done.so_far]
            gap = max(seen) - min(seen)
            run.record(f"{protocol}_gap", gap)
            if gap > self.most:
                run.stop(f"the tasks are {gap:.3f} apart, allowed: {self.most}")
