"""Sums independent of the order of addition: weighted values are rounded once, to fixed point, and added as integers.

The result of floating-point addition depends on its order, so a run's bits would depend on how clients are packed onto
hosts. Here every client's weighted value becomes a whole number of steps of 2^-44 (deltas) or of two limbs, 2^-34 and
the remainder in 2^-76 (everything else: Fisher values of 1e-10 beside activations of 1e5). Integers add exactly.

int64 wraps silently and NaN casts to -2^63, so a value is checked before it is weighted: finite, and at most `bound`.
As the weights of a sum add up to at most 1, its integers then stay below 2^62.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

WEIGHT_BITS = 62
HEAVIEST = 2**62 + 2**40  # weight 1, and a margin for the rounding of shares


@dataclass(frozen=True)
class Grid:
    """A fixed-point grid: the exponents of the limbs' steps, and the largest magnitude allowed."""

    bits: tuple[int, ...]
    bound: float


DELTAS = Grid(bits=(44,), bound=2.0**18)
WIDE = Grid(bits=(34, 76), bound=2.0**28)


class OutOfRange(ValueError):
    """A value is not finite or larger than its grid allows, as the run diverges."""


@dataclass
class ExactSum:
    """The sum of weight * value over clients, and the sum of the weights, both exact.

    `limbs` is int64, on the CPU, of shape [number of limbs, *shape of the values]; `weight` counts steps of 2^-62.
    """

    grid: Grid
    limbs: Tensor | None = None
    weight: int = 0

    def add(self, value: Tensor, weight: float) -> None:
        """Add weight * value.

        Raises:
            OutOfRange: the value is not finite or too large.
            ValueError: the weight is negative, or the sum of the weights exceeds 1.
        """
        largest = float(value.abs().max()) if value.numel() else 0.0
        if not largest <= self.grid.bound:  # also true of NaN
            raise OutOfRange(f"{largest:g}, allowed: finite and at most {self.grid.bound:g}")
        self._weigh(round(weight * 2.0**WEIGHT_BITS))
        if self.limbs is None:
            self.limbs = torch.zeros(len(self.grid.bits), *value.shape, dtype=torch.int64)
        rest = value.detach().to(torch.float64, copy=True).mul_(weight)
        for limb, bits in enumerate(self.grid.bits):
            whole = (rest * 2.0**bits).round_()
            self.limbs[limb] += whole.to(torch.int64).cpu()
            if limb + 1 < len(self.grid.bits):
                rest -= whole.mul_(2.0**-bits)  # exact: both are multiples of rest's last bit

    def merge(self, other: ExactSum) -> None:
        """Add another host's sum to this one."""
        if other.limbs is not None:
            self._weigh(other.weight)
            self.limbs = other.limbs.clone() if self.limbs is None else self.limbs.add_(other.limbs)

    def fresh(self) -> ExactSum:
        """Return an empty sum of the same kind."""
        return replace(self, limbs=None, weight=0)

    def mean(self) -> Tensor:
        """Return sum(weight * value) / sum(weight), float64."""
        if self.limbs is None or self.weight == 0:
            raise ValueError("the mean of nothing")
        return self._value() / (self.weight * 2.0**-WEIGHT_BITS)

    def total(self, count: int) -> Tensor:
        """Return the sum of the values, float64, where each of `count` clients was given the weight 1 / count."""
        return self._value() * count

    def _weigh(self, weight: int) -> None:
        if weight < 0 or self.weight + weight > HEAVIEST:
            found = (self.weight + weight) * 2.0**-WEIGHT_BITS
            raise ValueError(f"found weights of sum {found:g}, allowed: none below 0, and at most 1 together")
        self.weight += weight

    def _value(self) -> Tensor:
        assert self.limbs is not None
        value = torch.zeros(self.limbs.shape[1:], dtype=torch.float64)
        for limb, bits in zip(self.limbs.flip(0), self.grid.bits[::-1], strict=True):
            value += limb.double() * 2.0**-bits
        return value
