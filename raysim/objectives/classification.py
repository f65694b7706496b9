"""Classification: one label for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from raysim.objectives.objective import Metric, Objective

UNLABELLED = -100  # which torch's cross-entropy leaves out
ACCURACY_METRIC = Metric("accuracy", "%", range=(0.0, 1.0))


class Classification(Objective):
    """One label for each sample: cross-entropy; the accuracy, under a protocol and as top-k (evaluation.top_k)."""

    metric = ACCURACY_METRIC
    classes: ClassVar[bool] = True
    counts: ClassVar[bool] = True

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of logits [n, classes] and labels [n]."""
        return functional.cross_entropy(outputs, targets)

    def terms(self, targets: Tensor) -> Tensor:
        """Return the number of labels that the loss counts, []: all but -100, the label of unlabelled samples."""
        return (targets != UNLABELLED).sum()

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the class [n] with the largest logit. The lowest class wins a tie."""
        return outputs.argmax(-1)

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return 1 for each sample with a correct prediction, else 0: [n, 1]."""
        return (predictions == targets).double()[:, None]

    def value(self, sums: Sequence[Fraction], samples: int) -> Fraction:
        """Return the accuracy. (A run counts right answers by class instead.)"""
        return sums[0] / samples
