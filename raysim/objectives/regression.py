"""Regression: one or more numbers for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from raysim.objectives.objective import Metric, Objective


class Regression(Objective):
    """Numbers for each sample: mean squared error; R2, the mean over several numbers.

    R2 = 1 - sum_i (y_i - f_i)^2 / sum_i (y_i - mean y)^2 over a task's test samples. A value of 1 is perfect, and 0 is
    as good as the mean target. There is no lower bound.
    """

    metric = Metric("R2", range=(None, 1.0))

    def check(self, targets: npt.NDArray[Any], ids: int) -> str | None:
        """Accept only float32 [N, D] without a constant column, for which R2 is undefined."""
        if targets.dtype != np.float32 or targets.ndim != 2:
            return f"found targets of {targets.dtype} {list(targets.shape)}, allowed: numbers, float32 [N, D]"
        if (targets == targets[0]).all(0).any():
            return "found targets that are all the same, allowed: some that differ, as R2 needs"
        return None

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean squared error of outputs and targets [n, D]."""
        return functional.mse_loss(outputs, targets.to(outputs.dtype))

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return (y - f)^2, y and y^2 for every number, [n, 3 D]."""
        y = targets.double()
        return torch.cat([(y - predictions.double()).square(), y, y.square()], 1)

    def value(self, sums: Sequence[Fraction], samples: int) -> Fraction:
        """Return R2."""
        d = len(sums) // 3
        parts = zip(sums[:d], sums[d : 2 * d], sums[2 * d :], strict=True)
        return 1 - sum((e / (squares - total * total / samples) for e, total, squares in parts), Fraction(0)) / d
