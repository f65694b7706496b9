"""Several labels for each sample, of which any number may be true."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from annotated_types import doc
from torch import Tensor
from torch.nn import functional

from raysim.objectives.objective import Metric, Objective


class MultiLabel(Objective):
    """Several labels for each sample, a 0/1 vector: binary cross-entropy; F1 of the predicted labels (logit > 0).

    F1 = 2 TP / (2 TP + FP + FN) over a task's test samples. `micro` first adds up the counts of all labels; `macro` is
    the mean of each label's F1. If TP, FP and FN are all 0, F1 is 0 as in scikit-learn.
    """

    def __init__(
        self,
        *,
        average: Annotated[
            Literal["micro", "macro"], doc("F1 over all labels together, or the mean of the labels' own")
        ] = "micro",
    ) -> None:
        self.average = average
        self.metric = Metric(f"{average} F1", range=(0.0, 1.0))

    def check(self, targets: npt.NDArray[Any], ids: int) -> str | None:
        """Accept only int64 [N, L] of 0 and 1."""
        if targets.dtype == np.int64 and targets.ndim == 2 and targets.max() <= 1:
            return None
        largest = f" up to {targets.max()}" if targets.dtype == np.int64 else ""
        description = f"{targets.dtype} {list(targets.shape)}{largest}"
        return f"found targets of {description}, allowed: 0 or 1 for each label, int64 [N, L]"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean binary cross-entropy of logits and targets [n, L]."""
        return functional.binary_cross_entropy_with_logits(outputs, targets.to(outputs.dtype))

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the predicted labels, bool [n, L]."""
        return outputs > 0

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return true positives, false positives and false negatives, [n, 3 L]."""
        true = targets.bool()
        return torch.cat([predictions & true, predictions & ~true, ~predictions & true], 1)

    def value(self, sums: Sequence[Fraction], samples: int) -> Fraction:
        """Return F1."""
        labels = len(sums) // 3
        counts = [sums[:labels], sums[labels : 2 * labels], sums[2 * labels :]]
        if self.average == "micro":
            counts = [[sum(counts_of_labels, Fraction(0))] for counts_of_labels in counts]
        f1_of_labels = [
            2 * tp / (2 * tp + fp + fn) if tp + fp + fn else Fraction(0) for tp, fp, fn in zip(*counts, strict=True)
        ]
        return sum(f1_of_labels, Fraction(0)) / len(f1_of_labels)
