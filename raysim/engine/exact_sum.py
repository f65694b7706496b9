"""Sums independent of the order of addition: weighted values are rounded once, to fixed point, and added as integers.

The result of floating-point addition depends on its order, so a run's bits would depend on how clients are packed onto
hosts. Here every client's weighted value becomes a whole number of steps of 2^-44 (deltas) or of two limbs, 2^-34 and
the remainder in 2^-76 (everything else: Fisher values of 1e-10 beside activations of 1e5). Integers add exactly.

int64 wraps silently and NaN casts to -2^63, so a value must be finite, and at most `bound`. As the weights of a sum add
up to at most 1, its integers then stay below 2^62. What a sum holds before its values are found to be so means nothing.

Everything is computed where the values are. Only a check reads a number, for which a GPU has to be waited for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from raysim.api.encoded import Encoded
from raysim.system.state import map_tensors

WEIGHT_BITS = 62
HEAVIEST = 2**62 + 2**40  # weight 1, and a margin for the rounding of shares
BLOCK = 2**18  # values added at a time, so that a large model needs no more memory than this for what lies between


@dataclass(frozen=True)
class Grid:
    """A fixed-point grid: the exponents of the limbs' steps, and the largest magnitude allowed."""

    bits: tuple[int, ...]
    bound: float

    def check(self, largest: float) -> None:
        """Check the largest magnitude of some values. Raises OutOfRange."""
        if not largest <= self.bound or math.isinf(largest):  # the first is also true of NaN
            most = "" if math.isinf(self.bound) else f" and at most {self.bound:g}"
            raise OutOfRange(f"{largest:g}, allowed: finite{most}")


DELTAS = Grid(bits=(44,), bound=2.0**18)
WIDE = Grid(bits=(34, 76), bound=2.0**28)
NO_SUM = Grid(bits=(), bound=math.inf)


def magnitude(value: Tensor) -> Tensor:
    """Return the largest absolute value (float64 [], where the values are), NaN if one is NaN."""
    if not value.numel():
        return torch.zeros((), dtype=torch.float64, device=value.device)
    signed = value.detach() if value.dtype != torch.bool else value.double()
    largest = [block.abs().max() for block in _blocks(signed)]
    return (largest[0] if len(largest) == 1 else torch.stack(largest).max()).double()


def _blocks(vector: Tensor) -> Sequence[Tensor]:
    return (vector,) if vector.numel() <= BLOCK else vector.reshape(-1).split(BLOCK)


class OutOfRange(ValueError):
    """A value is not finite or larger than its grid allows, as the run diverges."""


@dataclass
class ExactSum:
    """The sum of weight * value over clients, and the sum of the weights, both exact.

    `limbs` is int64, of shape [number of limbs, *shape of the values], on the device of the first value that was added;
    `weight` counts steps of 2^-62. A first value that is encoded, or the only one, stays as it is, as the `lone` one
    with its weight, until another is added: what a host says of a single client is as long as what the client sends.
    """

    grid: Grid
    limbs: Tensor | None = None
    weight: int = 0
    lone: tuple[Tensor | Encoded, float] | None = None

    def add(self, value: Tensor, weight: float) -> None:
        """Add weight * value.

        Raises:
            OutOfRange: the value is not finite or too large.
            ValueError: the weight is negative, or the sum of the weights exceeds 1.
        """
        self.grid.check(float(magnitude(value)))
        self.add_unchecked(value, weight)

    def add_unchecked(self, value: Tensor | Encoded, weight: float) -> None:
        """Add weight * value, of which `grid.check(magnitude(value))` is still to be asked.

        Raises:
            ValueError: the weight is negative, or the sum of the weights exceeds 1.
        """
        if isinstance(value, Encoded) and self.limbs is None and self.lone is None:
            self.hold(value, weight)
        else:
            self._weigh(round(weight * 2.0**WEIGHT_BITS))
            self.unpack()
            self._accumulate(value, weight)

    def hold(self, value: Tensor | Encoded, weight: float) -> None:
        """Take the first value of an empty sum, maybe its only one, as it is, unchecked. Raises as `add_unchecked`."""
        self._weigh(round(weight * 2.0**WEIGHT_BITS))
        self.lone = map_tensors(lambda tensor: tensor.detach().clone(), value), weight

    def unpack(self) -> None:
        """Weight a lone value and make limbs of it."""
        if self.lone is not None:
            (value, weight), self.lone = self.lone, None
            self._accumulate(value, weight)

    def _accumulate(self, added: Tensor | Encoded, weight: float) -> None:
        value = added.detach() if isinstance(added, Tensor) else added.decode()
        bits = self.grid.bits
        if self.limbs is None:
            self.limbs = torch.zeros(len(bits), *value.shape, dtype=torch.int64, device=value.device)
        if not value.numel():  # as the buffers of most models
            return
        # in steps of the first limb; a power of two changes no bit of a product
        scale, finer = weight * 2.0 ** bits[0], [2.0 ** (fine - coarse) for coarse, fine in pairwise(bits)]
        for block, *limbs, last in zip(*map(_blocks, (value, *self.limbs.unbind())), strict=True):
            rest = block.to(self.limbs.device, torch.float64, copy=True).mul_(scale)
            for limb, step in zip(limbs, finer, strict=True):
                whole = rest.round()
                limb.add_(whole.to(torch.int64))
                rest.sub_(whole).mul_(step)  # exact: both are multiples of rest's last bit
            last.add_(rest.round_().to(torch.int64))

    def merge(self, other: ExactSum) -> None:
        """Add another host's sum to this one."""
        if other.lone is not None and self.limbs is None and self.lone is None:
            self._weigh(other.weight)
            self.lone = other.lone
        elif other.lone is not None:
            self.add_unchecked(*other.lone)
        elif other.limbs is not None:
            self.unpack()
            self._weigh(other.weight)
            self.limbs = other.limbs.clone() if self.limbs is None else self.limbs.add_(other.limbs)

    def fresh(self) -> ExactSum:
        """Return an empty sum of the same kind."""
        return replace(self, limbs=None, weight=0, lone=None)

    def mean(self) -> Tensor:
        """Return sum(weight * value) / sum(weight), float64."""
        if self.weight == 0:
            raise ValueError("the mean of nothing")
        return self._value().div_(self.weight * 2.0**-WEIGHT_BITS)

    def total(self, count: int) -> Tensor:
        """Return the sum of the values, float64, where each of `count` clients was given the weight 1 / count."""
        return self._value().mul_(count)

    def _weigh(self, weight: int) -> None:
        if weight < 0 or self.weight + weight > HEAVIEST:
            found = (self.weight + weight) * 2.0**-WEIGHT_BITS
            raise ValueError(f"found weights of sum {found:g}, allowed: none below 0, and at most 1 together")
        self.weight += weight

    def _value(self) -> Tensor:
        self.unpack()
        assert self.limbs is not None
        *higher, lowest = zip(self.limbs, self.grid.bits, strict=True)
        value: Tensor = lowest[0].double().mul_(2.0 ** -lowest[1])
        for limb, bits in reversed(higher):
            value += limb.double().mul_(2.0**-bits)
        return value
