"""The interface of an objective: a loss, a prediction, and a metric. Sums over test samples are exact."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

IGNORED = -100
"""The target of a position that counts neither in the loss nor in the metric, as in torch's `cross_entropy`."""

Inputs = Tensor | Mapping[str, Tensor]
"""Samples as a model receives them: [n, ...], or tensors by name if a sample is several arrays."""

Model = Callable[[Inputs], Tensor]
"""An evaluated model: returns outputs [n, ...] for samples. One model computes the same for the same samples."""


@dataclass(frozen=True)
class Metric:
    """The metric of an evaluation."""

    name: str
    unit: str = ""
    """The unit as text, or empty. Values with the unit % are fractions, shown in %."""
    higher_is_better: bool = True
    range: tuple[float | None, float | None] = (None, None)
    """The smallest and the largest possible value; None is no bound."""

    @property
    def scale(self) -> int:
        """The factor by which values are multiplied for display."""
        return 100 if self.unit == "%" else 1

    @property
    def title(self) -> str:
        """The name with its unit, as in `accuracy in %`."""
        return f"{self.name} in {self.unit}" if self.unit else self.name

    @property
    def axis(self) -> str:
        """The suffix of a plot's axis label."""
        return f" ({self.unit})" if self.unit else ""

    def figure(self, value: float) -> str:
        """Return a value as text, without its unit."""
        return format(self.scale * value, ".1f" if self.unit == "%" else ".3f")

    def better(self, values: Sequence[float]) -> Sequence[float]:
        """Return the values, negated if lower is better, so that the higher one is the better one."""
        return values if self.higher_is_better else [-value for value in values]


class Objective(ABC):
    """A learning objective. The keyword-only parameters of a subclass's constructor are its keys."""

    metric: Metric
    """The metric of evaluations."""
    classes: ClassVar[bool] = False
    """Whether targets are class labels (int64 [n]) and outputs are logits. Class-incremental tasks, partitions by label
    and some methods need this."""
    counts: ClassVar[bool] = False
    """Whether the metric is the accuracy, which is counted by class."""
    positions: ClassVar[bool] = False
    """Whether a sample has an output at each of its positions, as with tokens. Targets may then be IGNORED."""
    in_image: ClassVar[bool] = False
    """Whether targets are places in an image. Rotations, permutations, crops and flips, which move pixels and no
    targets, are then refused."""

    continues: bool = False
    """Whether evaluations continue the ids of samples, so that these must be ids, one for each target. They may be
    `input_ids` with an `attention_mask`."""

    @property
    def tokenizer_digest(self) -> str | None:
        """The digest of the tokenizer that makes texts of the model's ids, if there is one. See `Dataset.tokenizer`."""
        return None

    def check(self, targets: npt.NDArray[Any], ids: int) -> str | None:
        """Return a problem with the targets [N, ...] of a split or a task, as `found ..., allowed: ...`, or None.

        `ids` is the dataset's number of classes: integer targets are from 0 to ids - 1. By default labels are checked.
        """
        if not self.classes or (targets.dtype == np.int64 and targets.ndim == 1):
            return None
        return f"found targets of {targets.dtype} {list(targets.shape)}, allowed: labels, int64 [N]"

    def outputs(self, targets: npt.NDArray[Any], ids: int) -> int:
        """Return the size of the model's last layer: by default the number of classes, or the size of a target."""
        if self.classes:
            return ids
        return int(targets.shape[-1]) if targets.ndim > 1 else 1

    def output_shape(self, shape: tuple[int, ...], outputs: int) -> tuple[int, ...]:
        """Return the shape of a model's output for one sample of `shape`, if its last layer has size `outputs`."""
        return (*shape, outputs) if self.positions else (outputs,)

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss [] of a non-empty batch in the outputs' dtype."""

    def answer(self, model: Model, x: Inputs, targets: Tensor) -> Tensor:
        """Return what an evaluation gives to `predict` for samples, [n, ...]. By default the outputs of one pass.

        An objective may call the model several times, such as for each token that it generates. Chunks of samples are
        the same on every host, so the result may depend on the chunk.
        """
        return model(x)

    def terms(self, targets: Tensor) -> int | Tensor:
        """Return the number of terms, [], of which `loss` is the mean for these targets: by default the samples.

        `training.accumulate` weights the mean losses of a batch's parts with it.
        """
        return len(targets)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the predictions [n, ...] for what `answer` returned. By default they are the same."""
        return outputs

    @abstractmethod
    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's contribution to the metric, [n, m]. They are summed exactly over a task's samples."""

    @abstractmethod
    def value(self, sums: Sequence[Fraction], samples: int) -> float | Fraction:
        """Return the metric from the m sums of `measure` and the number of samples."""


class OfAllSamples(Objective):
    """An objective with a metric that is no function of sums: it needs all test samples, for example to rank them.

    The rows of `measure` are collected over a task's test samples. `value_of` receives them in the test set's order.
    """

    @abstractmethod
    def value_of(self, rows: npt.NDArray[np.float64]) -> float:
        """Return the metric from each sample's row of `measure`, [N, m]."""

    def value(self, sums: Sequence[Fraction], samples: int) -> float:
        """Raise an error: there are no sums."""
        raise AssertionError("the metric is of rows, see value_of")
