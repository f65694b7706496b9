"""Sums that do not depend on the order of addition.

Floating-point sums depend on the order, so a run's bits would depend on how clients are packed onto hosts. Here every
weighted value is rounded once to fixed point, and the integers are added, which is exact. A value is stored as one or
two int64 tensors (limbs). A delta's parameters have one limb, which counts multiples of 2^-44. Other values range from
Fisher values of 1e-10 to activations of 1e5. They have two limbs: one counts multiples of 2^-34, the other counts
multiples of 2^-76 in the remainder.

int64 wraps silently and NaN casts to -2^63. So values must be finite and at most `bound`. The weights of a sum add up
to at most 1, so its integers then stay below 2^62. A sum is meaningless until its values have been checked.

Sums are computed on the values' device. Only a check reads a number and has to wait for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from raysim.api.encoded import Encoded, decoded
from raysim.system.errors import RunError
from raysim.system.state import map_tensors

WEIGHT_BITS = 62
HEAVIEST = 2**62 + 2**40  # a weight of 1, and a margin for rounded shares
BLOCK = 2**18  # values added at a time, which limits the memory for intermediate results


@dataclass(frozen=True)
class Grid:
    """A fixed-point grid."""

    bits: tuple[int, ...]  # for each limb: n, where the limb counts multiples of 2^-n
    bound: float  # the largest allowed magnitude

    def check(self, largest: float) -> None:
        """Check the largest magnitude of some values. Raises OutOfRange."""
        if not largest <= self.bound or math.isinf(largest):  # NaN fails the first comparison
            most = "" if math.isinf(self.bound) else f" and at most {self.bound:g}"
            raise OutOfRange(f"{largest:g}, allowed: finite{most}")


DELTAS = Grid(bits=(44,), bound=2.0**18)
WIDE = Grid(bits=(34, 76), bound=2.0**28)
NO_SUM = Grid(bits=(), bound=math.inf)


def magnitude(value: Tensor) -> Tensor:
    """Return the largest absolute value (float64 [], on the same device). NaN if a value is NaN."""
    if not value.numel():
        return torch.zeros((), dtype=torch.float64, device=value.device)
    signed = value.detach() if value.dtype != torch.bool else value.double()
    largest = [block.abs().max() for block in _blocks(signed)]
    return (largest[0] if len(largest) == 1 else torch.stack(largest).max()).double()


def _blocks(vector: Tensor) -> Sequence[Tensor]:
    return (vector,) if vector.numel() <= BLOCK else vector.reshape(-1).split(BLOCK)


class OutOfRange(ValueError):
    """A value is not finite, or larger than its grid allows, because the run diverges."""


@dataclass
class ExactSum:
    """The exact sum of weight * value over clients, and the exact sum of the weights.

    The first value can stay in its original form until a second one is added. If a host sums only one client, its
    reply is then no larger than this client's update.
    """

    grid: Grid
    limbs: Tensor | None = None  # the sum (int64 [limbs, *shape]), on the first value's device
    weight: int = 0  # the sum of the weights, as a multiple of 2^-62
    single: tuple[Tensor | Encoded, float] | None = None  # the first value and its weight, if not yet in the limbs

    @property
    def shape(self) -> torch.Size | None:
        """The shape of the values; None if there is none yet."""
        if self.single is not None:
            return decoded(self.single[0]).shape
        return None if self.limbs is None else self.limbs.shape[1:]

    def add(self, value: Tensor | Encoded, weight: float) -> None:
        """Add weight * value. The caller has to call `grid.check` with the value's magnitude later.

        Raises:
            ValueError: the weight is negative, or the sum of the weights exceeds 1.
        """
        if isinstance(value, Encoded) and self.limbs is None and self.single is None:
            self.hold(value, weight)
        else:
            self._weigh(round(weight * 2.0**WEIGHT_BITS))
            self.unpack()
            self._accumulate(value, weight)

    def add_rows(self, values: Tensor, weights: Sequence[float]) -> None:
        """Add weights[i] * values[i] for all rows of values [n, P], as `add` does for each."""
        for weight in weights:
            self._weigh(round(weight * 2.0**WEIGHT_BITS))
        self.unpack()
        rows = BLOCK // max(values.shape[1], 1)
        if rows < 2:
            for value, weight in zip(values, weights, strict=True):
                self._accumulate(value, weight)
        else:
            factors = torch.tensor(weights, dtype=torch.float64, device=values.device)[:, None]
            for part, factor in zip(values.split(rows), factors.split(rows), strict=True):
                self._accumulate_rows(part, factor)

    def hold(self, value: Tensor | Encoded, weight: float) -> None:
        """Store the first value, unchecked and in its original form, in this empty sum. Raises as `add`."""
        self._weigh(round(weight * 2.0**WEIGHT_BITS))
        self.single = map_tensors(lambda tensor: tensor.detach().clone(), value), weight

    def unpack(self) -> None:
        """Convert a single value to limbs."""
        if self.single is not None:
            (value, weight), self.single = self.single, None
            self._accumulate(value, weight)

    def _accumulate(self, added: Tensor | Encoded, weight: float) -> None:
        value = added.detach() if isinstance(added, Tensor) else added.decode()
        bits = self.grid.bits
        if self.limbs is None:
            self.limbs = torch.zeros(len(bits), *value.shape, dtype=torch.int64, device=value.device)
        if not value.numel():  # most models have no buffers
            return
        # Scale to multiples of the first limb's unit. The product weight * value is rounded once; multiplying it by a
        # power of two is exact.
        scale, finer = weight * 2.0 ** bits[0], [2.0 ** (fine - coarse) for coarse, fine in pairwise(bits)]
        for block, *limbs, last in zip(*map(_blocks, (value, *self.limbs.unbind())), strict=True):
            rest = block.to(self.limbs.device, torch.float64, copy=True).mul_(scale)
            for limb, step in zip(limbs, finer, strict=True):
                whole = rest.round()
                limb.add_(whole.to(torch.int64))
                rest.sub_(whole).mul_(step)  # exact: `rest` and `whole` are multiples of the last bit of `rest`
            last.add_(rest.round_().to(torch.int64))

    def _accumulate_rows(self, values: Tensor, weights: Tensor) -> None:
        """Add the rows of values [n, P] with weights [n, 1], float64, rounding each as `_accumulate` does."""
        bits = self.grid.bits
        if self.limbs is None:
            self.limbs = torch.zeros(len(bits), values.shape[1], dtype=torch.int64, device=values.device)
        rest = values.double() * (weights * 2.0 ** bits[0])
        for limb, coarse, fine in zip(self.limbs, bits, [*bits[1:], bits[-1]], strict=True):
            whole = rest.round()
            limb.add_(whole.to(torch.int64).sum(0))
            rest = rest.sub_(whole).mul_(2.0 ** (fine - coarse))

    def merge(self, other: ExactSum) -> None:
        """Add another host's sum to this one."""
        if other.single is not None and self.limbs is None and self.single is None:
            self._weigh(other.weight)
            self.single = other.single
        elif other.single is not None:
            self.add(*other.single)
        elif other.limbs is not None:
            self.unpack()
            self._weigh(other.weight)
            self.limbs = other.limbs.clone() if self.limbs is None else self.limbs.add_(other.limbs)

    def mean(self) -> Tensor:
        """Return sum(weight * value) / sum(weight), float64."""
        if self.weight == 0:
            allowed = "allowed: one above 0, of a `samples` hook's positions or as Term.weight"
            raise RunError(f"found weights of 0 for all clients of a mean, {allowed}")
        return self._value().div_(self.weight * 2.0**-WEIGHT_BITS)

    def total(self, count: int) -> Tensor:
        """Return the unweighted sum, float64, given that each of `count` clients has the weight 1 / count."""
        return self._value().mul_(count)

    def _weigh(self, weight: int) -> None:
        if weight < 0 or self.weight + weight > HEAVIEST:
            total = (self.weight + weight) * 2.0**-WEIGHT_BITS
            raise ValueError(f"found weights of sum {total:g}, allowed: none below 0, and a sum of at most 1")
        self.weight += weight

    def _value(self) -> Tensor:
        self.unpack()
        assert self.limbs is not None
        *higher, lowest = zip(self.limbs, self.grid.bits, strict=True)
        value: Tensor = lowest[0].double().mul_(2.0 ** -lowest[1])
        for limb, bits in reversed(higher):
            value += limb.double().mul_(2.0**-bits)
        return value
