"""A little text without words: ids that follow one another, a model of them, and objectives that break their rules."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.data.dataset import Dataset, Split
from raysim.objectives import Metric
from raysim.objectives.classification import Classification
from raysim.objectives.regression import Regression

IDS, LENGTH = 5, 4


def tokens(root: Path, download: bool) -> Dataset:
    """Ids 1 to 4 in turn, from a random one on; 0 is padding at the end of every third sample."""

    def made(samples: int) -> Split:
        first = np.random.default_rng(samples).integers(0, 4, size=(samples, 1))
        ids = 1 + (first + np.arange(LENGTH + 1)) % 4
        ids[::3, -1] = 0
        return Split(ids[:, :-1].astype(np.float32), ids[:, 1:])

    return Dataset(made(36), made(20), classes=IDS)


class Bigram(nn.Module):
    def __init__(self, ids: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(ids, 6)
        self.norm = nn.LayerNorm(6)
        self.head = nn.Linear(6, ids)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.embedding(x.long())))
        return logits


def bigram(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Bigram(classes)


class PerSample(Regression):
    """Its loss is no mean."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum(1)


class InDouble(Regression):
    """Its loss is of another dtype."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().loss(outputs, targets).double()


class InAll(Regression):
    """It measures all samples at once."""

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (targets - predictions).square().sum(0)


class Infinite(Regression):
    """Its loss is finite on zeros alone."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().loss(outputs, targets) + outputs.detach().abs().sum() * torch.inf


class ErrorRate(Classification):
    """Its metric would not be used, as the accuracy is counted."""

    metric = Metric("error rate", "%", higher_is_better=False, range=(0.0, 1.0))

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        return (predictions != targets).double()[:, None]


class OwnErrorRate(ErrorRate):
    """Its metric is used."""

    counts = False


class Worst(Classification):
    """Its prediction would not be used, nor its value."""

    def predict(self, outputs: Tensor) -> Tensor:
        return outputs.argmin(-1)

    def value(self, sums: Sequence[Fraction], samples: int) -> Fraction:
        return sums[0] / samples / 2


class Smoothed(Classification):
    """Smoothed labels share a part among all classes, also among those with the logit -inf."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets, label_smoothing=0.1)


class SmoothedAmongKept(Smoothed):
    """The excluded classes are left out, as their labels do not occur."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        kept = outputs[0].isfinite().nonzero()[:, 0]
        return super().loss(outputs[:, kept], torch.searchsorted(kept, targets))


class Lacking(Regression):
    """It fails in code of its own."""

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        missing: dict[str, Any] = {}
        found: Tensor = missing["loss"]
        return found
