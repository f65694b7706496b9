"""Classification: one label for each sample."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn import functional

from raysim.objectives.objective import Metric, Objective

ACCURACY_METRIC = Metric("accuracy", "%", range=(0.0, 1.0))


class Classification(Objective):
    """One label for each sample: cross-entropy; the accuracy, under a protocol and as top-k (evaluation.top_k)."""

    metric = ACCURACY_METRIC
    classes: ClassVar[bool] = True
    counts: ClassVar[bool] = True

    def check(self, targets: npt.NDArray[Any], ids: int) -> str | None:
        """Refuse all but int64 [N]."""
        if targets.dtype == np.int64 and targets.ndim == 1:
            return None
        return f"found targets of {targets.dtype} {list(targets.shape)}, allowed: labels, int64 [N]"

    def outputs(self, targets: npt.NDArray[Any], ids: int) -> int:
        """Return the number of classes."""
        return ids

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of logits [n, classes] and labels [n]."""
        return functional.cross_entropy(outputs, targets)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the class [n] of the largest logit, the lowest of equal ones."""
        return outputs.argmax(-1)
