"""Top-k: a client sends the k largest entries of its update, and adds what it did not send to the next one.

Stich, Cordonnier and Jaggi, NeurIPS 2018, arXiv 1809.07599; Aji and Heafield, EMNLP 2017, arXiv 1704.05021. It combines
with other methods, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Gt, Le, doc
from torch import Tensor

from raysim.algorithms.parts.error_feedback import encode_with_feedback
from raysim.api import ClientHalf, Encoded, Method


@dataclass(frozen=True, kw_only=True)
class TopK(Method):
    """Top-k: send the largest entries of an update, keep the rest for the next (Stich et al., NeurIPS 2018)."""

    fraction: Annotated[float, Gt(0), Le(1), doc("k as a fraction of the vector's length; one entry at least")] = 0.01
    feedback: Annotated[bool, doc("add what was not sent to the next update: error feedback (Stich et al.)")] = True
    vectors: Annotated[Literal["update", "all"], doc("the update, or all sums as long as the model")] = "update"

    neutral: ClassVar = {"fraction": 1.0}

    class Client(ClientHalf):
        """Sends g = top_k(m + x), and keeps m <- m + x - g: Algorithm 1, with x the client's update."""

        method: TopK

        def __init__(self, name: str, method: TopK) -> None:
            super().__init__(name, method)
            self.residuals: dict[str, Tensor] = {}  # m [P], by vector

        def encode(self, name: str, vector: Tensor, draws: np.random.Generator) -> Tensor | Encoded:
            """Return the largest entries."""
            if name != "update" and self.method.vectors == "update":
                return vector
            largest = partial(keep_largest, count=max(1, round(self.method.fraction * len(vector))))
            if not self.method.feedback:
                return largest(vector)
            return encode_with_feedback(self.residuals, name, vector, largest)


@dataclass(frozen=True)
class SparseVector(Encoded):
    """A vector of `length` entries, all 0 but the `values` [k] at the `indices` (int32 [k], ascending)."""

    indices: Tensor
    values: Tensor
    length: int

    def decode(self) -> Tensor:
        """Return the vector [length]."""
        return self.values.new_zeros(self.length).index_copy_(0, self.indices.long(), self.values)


def keep_largest(vector: Tensor, count: int) -> SparseVector:
    """Return the `count` entries of largest magnitude; of equal ones, those of lower index."""
    order = vector.abs().sort(descending=True, stable=True).indices  # a NaN comes first, so that it is not lost
    indices = order[:count].sort().values
    return SparseVector(indices.int(), vector[indices], len(vector))
