"""What an objective is: a loss, a prediction, and a metric whose sums are added exactly over the test samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """What a model is tested by.

    `unit` is in words, empty if there is none; the values of unit % are fractions, shown in %. `range` are the least
    and the largest value that there can be, None where there is none.
    """

    name: str
    unit: str = ""
    higher_is_better: bool = True
    range: tuple[float | None, float | None] = (None, None)

    @property
    def scale(self) -> int:
        """What values are multiplied by to be shown."""
        return 100 if self.unit == "%" else 1

    @property
    def title(self) -> str:
        """The name with its unit, as in `accuracy in %`."""
        return f"{self.name} in {self.unit}" if self.unit else self.name

    @property
    def axis(self) -> str:
        """The unit behind the name of a plot's axis."""
        return f" ({self.unit})" if self.unit else ""

    def figure(self, value: float) -> str:
        """Return a value as it is shown, without its unit."""
        return format(self.scale * value, ".1f" if self.unit == "%" else ".3f")

    def better(self, values: Sequence[float]) -> Sequence[float]:
        """Return the values with the sign with which the higher one is the better one."""
        return values if self.higher_is_better else [-value for value in values]


class Objective(ABC):
    """What is learned of samples and their targets. A subclass's constructor has the keys, keyword-only.

    `metric` is what a model is tested by. `classes` says whether targets are labels of classes (int64 [n]) and outputs
    their logits, which class-incremental tasks, partitions by label and some methods need; `counts` whether the metric
    is the accuracy, which is counted by class; `positions` whether a sample has an output at each of its positions, as
    tokens have.
    """

    metric: Metric
    classes: ClassVar[bool] = False
    counts: ClassVar[bool] = False
    positions: ClassVar[bool] = False

    def check(self, targets: npt.NDArray[Any], ids: int) -> str | None:
        """Return what is wrong with a split's or a task's targets [N, ...], as `found ..., allowed: ...`, or None.

        `ids` is the data set's number of classes: integer targets are from 0 to ids - 1. Here labels are checked.
        """
        if not self.classes or (targets.dtype == np.int64 and targets.ndim == 1):
            return None
        return f"found targets of {targets.dtype} {list(targets.shape)}, allowed: labels, int64 [N]"

    def outputs(self, targets: npt.NDArray[Any], ids: int) -> int:
        """Return the size of the model's last layer: here the number of classes, or as many numbers as a target has."""
        if self.classes:
            return ids
        return int(targets.shape[-1]) if targets.ndim > 1 else 1

    def output_shape(self, shape: tuple[int, ...], outputs: int) -> tuple[int, ...]:
        """Return the shape of a model's output for one sample of `shape`, its last layer being of size `outputs`."""
        return (*shape, outputs) if self.positions else (outputs,)

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss [] of a batch, of one sample at least, in the outputs' dtype."""

    def predict(self, outputs: Tensor) -> Tensor:
        """Return what the model says of each sample [n, ...], given its outputs [n, ...]: here the outputs."""
        return outputs

    @abstractmethod
    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return what the metric adds up of each sample, [n, m]; the sums over all samples of a task are exact."""

    @abstractmethod
    def value(self, sums: Sequence[Fraction], samples: int) -> float | Fraction:
        """Return the metric of so many samples from the sums of what was measured, m of them."""
