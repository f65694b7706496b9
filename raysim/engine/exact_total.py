"""Sums of whole tensors, each with weight 1, that depend neither on the order nor on the grouping of what is added.

An `ExactSum` weighs its values, so a sum of n clients is a mean times n: its last bit depends on n. Here every value is
split into int64 limbs, which are added. Carries make the limbs of equal sums equal before they become one number.

    int64      two limbs, which count 2^32 and 1. Every sum within int64 is exact; others are refused.
    float64    three limbs, which count 2^10, 2^-33 and 2^-76. Values are at most 2^53, and are rounded to multiples of
               2^-76. Their sum is exact. At the end it is rounded, perhaps twice, if float64 does not hold it.

One value adds at most 2^43 to a limb, so MOST values stay within int64.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from raysim.engine.exact_sum import BLOCK, Grid, OutOfRange

MOST = 2**20 - 1
COARSE, WIDTH, FINE = 10, 43, 76  # the first limb counts 2^COARSE, the last one 2^-FINE, each 2^WIDTH of the next one
TOTALS = Grid(bits=(-COARSE, WIDTH - COARSE, FINE), bound=2.0**53)
DTYPES = (torch.int64, torch.float64)


@dataclass(frozen=True)
class ExactTotal:
    """The exact sum of int64 or of float64 tensors of one shape.

    The caller checks that float64 values are within `TOTALS`. Before that, the sum may be meaningless.
    """

    limbs: Tensor  # int64 [2, *shape] of integers, [3, *shape] of floats; on the first value's device
    count: int = 1  # the number of values

    @classmethod
    def of(cls, value: Tensor) -> ExactTotal:
        """Return the sum of one value."""
        count, split = (3, _split_floats) if value.dtype == torch.float64 else (2, _split_integers)
        limbs = torch.empty(count, value.numel(), dtype=torch.int64, device=value.device)
        for part, into in zip(value.detach().reshape(-1).split(BLOCK), limbs.split(BLOCK, dim=1), strict=True):
            torch.stack(split(part), out=into)
        return cls(limbs.view(count, *value.shape))

    @property
    def shape(self) -> torch.Size:
        """The shape of the values."""
        return self.limbs.shape[1:]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return torch.float64 if len(self.limbs) == len(TOTALS.bits) else torch.int64

    def plus(self, other: ExactTotal) -> ExactTotal:
        """Return the sum of all values, which have one shape and dtype. Raises OutOfRange: too many values."""
        count = self.count + other.count
        if count > MOST:
            raise OutOfRange(f"a sum of {count:,} values, allowed: at most {MOST:,}")
        return ExactTotal(self.limbs + other.limbs, count)

    def value(self) -> Tensor:
        """Return the sum, in the values' dtype. Raises OutOfRange: int64 does not hold it."""
        if self.dtype == torch.int64:
            high, low = self.limbs
            high, low = high + (low >> 32), low & (2**32 - 1)
            if bool(((high < -(2**31)) | (high >= 2**31)).any()):
                raise OutOfRange("a sum that int64 does not hold, allowed: from -2^63 to 2^63 - 1")
            whole: Tensor = high * 2**32 + low
            return whole
        high, middle, low = self.limbs
        # Remainders from -half to half: one from 0 up would need more bits than a small negative sum has.
        middle, low = _carry(middle, low)
        high, middle = _carry(high, middle)
        fine: Tensor = low.double() * 2.0**-FINE + middle.double() * 2.0 ** (WIDTH - FINE)
        return fine + high.double() * 2.0**COARSE


def _split_floats(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the limbs of values [n], rounded to multiples of the last one's unit."""
    rest = values * 2.0**-COARSE
    high = rest.round()
    rest = (rest - high) * 2.0**WIDTH  # exact: both are multiples of the last bit of `rest`
    middle = rest.round()
    low = ((rest - middle) * 2.0**WIDTH).round()
    return high.to(torch.int64), middle.to(torch.int64), low.to(torch.int64)


def _split_integers(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return the limbs of values [n]: value = high * 2^32 + low, with low from 0."""
    return values >> 32, values & (2**32 - 1)


def _carry(coarse: Tensor, fine: Tensor) -> tuple[Tensor, Tensor]:
    """Move multiples of 2^WIDTH to the coarse limb. The fine one is then at least -half of that, and below half."""
    whole = (fine + 2 ** (WIDTH - 1)) >> WIDTH
    return coarse + whole, fine - whole * 2**WIDTH
