"""A grid of B bits for features. Sums of products of features are then integers, which every grouping adds exactly.

A feature f becomes the integer q = round(f / step) with step = bound / 2^(B-1). It is at most 2^(B-1) in size: larger
features saturate, and are counted. The step is fixed before any data are seen. So |q q'| <= 2^(2B-2) for each product
of two features, and a sum over n samples is at most

    n 2^(2B-2) <= 2^53    if    B <= 1 + (53 - log2 n) / 2.

Float64 holds all integers up to 2^53. So each partial sum of a matrix product is exact, whatever its order and blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import torch
from torch import Tensor

from raysim.api import RunError

EXACT = 2**53
"""Float64 holds all integers up to here."""
BITS = (2, 26)
"""The fewest and the most bits of a feature. With 27 bits, three samples may pass 2^53."""


@dataclass(frozen=True)
class FeatureGrid:
    """Integers of features, in units of `step`."""

    bits: int
    bound: float

    @property
    def largest(self) -> int:
        """The size of the largest integer."""
        return 1 << (self.bits - 1)

    @property
    def step(self) -> float:
        """The feature of the integer 1."""
        return self.bound / self.largest

    def integers(self, features: Tensor) -> tuple[Tensor, int]:
        """Return features [n, d] as integers in float64, and how many of them were saturated.

        Raises:
            RunError: a feature is not finite.
        """
        scaled = (features.double() / self.step).round()
        if not bool(scaled.isfinite().all()):
            raise RunError("found a feature that is not finite, allowed with a grid: finite features")
        return scaled.clamp(-self.largest, self.largest), int((scaled.abs() > self.largest).sum())

    def most_samples(self) -> int:
        """Return the largest number of samples for which sums stay exact."""
        return EXACT // self.largest**2

    def refusal(self, samples: int) -> str | None:
        """Return why this grid is not exact for this many samples. None if it is."""
        if samples <= self.most_samples():
            return None
        allowed = isqrt(EXACT // samples).bit_length()
        return (
            f"found grid={self.bits} for {samples:,} samples, for which sums could pass 2^53, allowed: at most "
            f"{allowed}; or null for sums that are rounded"
        )


def saturated_to_integers(features: Tensor, grid: FeatureGrid | None) -> tuple[Tensor, int]:
    """Return the rows [n, d] to sum, in float64, and how many of their entries were saturated."""
    return (features.double(), 0) if grid is None else grid.integers(features)


def as_total(value: Tensor, grid: FeatureGrid | None) -> Tensor:
    """Return a sum of rows or products in the dtype in which it is sent: int64 with a grid."""
    return value if grid is None else value.to(torch.int64)
