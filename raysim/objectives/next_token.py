"""Next-token prediction at every position of a sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from annotated_types import Ge, doc
from torch import Tensor
from torch.nn import functional

from raysim.objectives.objective import IGNORED, Metric, Objective


class NextToken(Objective):
    """The token that follows at each position, an id: cross-entropy over all tokens; perplexity, lower is better.

    Perplexity is exp of the mean of -log p over all counted tokens of a task's test samples. Targets that are IGNORED
    (-100) or `padding` are not counted, such as those of a prompt.
    """

    metric = Metric("perplexity", higher_is_better=False, range=(1.0, None))
    positions: ClassVar[bool] = True

    def __init__(
        self,
        *,
        padding: Annotated[
            Annotated[int, Ge(0)] | None, doc("the id that is no token, which no loss counts; null is none")
        ] = None,
    ) -> None:
        self.padding = IGNORED if padding is None else padding

    def check(self, targets: npt.NDArray[Any], ids: int) -> str | None:
        """Accept only int64 [N, length] with at least one counted token in each sample."""
        if targets.dtype != np.int64 or targets.ndim != 2:
            return f"found targets of {targets.dtype} {list(targets.shape)}, allowed: ids of tokens, int64 [N, length]"
        empty = np.flatnonzero(((targets == self.padding) | (targets == IGNORED)).all(1))
        if not empty.size:
            return None
        found = f"found a sample of which no token counts, only padding or {IGNORED} (row {empty[0]})"
        return f"{found}, allowed: at least one token in each; leave such samples out"

    def outputs(self, targets: npt.NDArray[Any], ids: int) -> int:
        """Return the size of the vocabulary."""
        return ids

    def counted(self, targets: Tensor) -> Tensor:
        """Return which targets [n, length] are tokens that count, bool [n, length]."""
        return (targets != self.padding) & (targets != IGNORED)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy over the counted tokens: logits [n, length, ids], targets [n, length]."""
        counted = targets.masked_fill(targets == self.padding, IGNORED)
        return functional.cross_entropy(outputs.flatten(0, 1), counted.flatten(), ignore_index=IGNORED)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return log p of every id, [n, length, ids]."""
        return outputs.log_softmax(-1)

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's sum of -log p over its tokens, and its number of tokens, [n, 2]."""
        counted = self.counted(targets)
        token_losses = -predictions.gather(-1, targets.clamp(min=0)[..., None]).squeeze(-1).double()
        return torch.stack([token_losses.where(counted, 0.0).sum(1), counted.sum(1).double()], 1)

    def value(self, sums: Sequence[Fraction], samples: int) -> float:
        """Return the perplexity."""
        total_loss, tokens = sums
        return math.exp(total_loss / tokens)
