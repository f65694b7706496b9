"""Means over seeds, and paired differences with their intervals and tests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

LEVEL = 0.05
"""A difference is significant below this p. Intervals cover 1 - LEVEL."""
ROUNDING = 1e-12
"""The relative size of a difference that only rounding makes."""
EQUAL_PAIRS = 3
"""Equal differences in so many pairs are significant without a test. Two can be equal by chance."""


@dataclass(frozen=True)
class MeanOverSeeds:
    """The mean of some values and their sample standard deviation, None for one value."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class PairedDifference(MeanOverSeeds):
    """The mean of paired differences and their deviation, with a two-sided t-test.

    Attributes:
        pairs: the number of pairs.
        half: half the interval around the mean, None for one pair or if all differences are equal.
        p: p of the test, None where `half` is. Both are of the test alone until `families.adjust_family` corrects them.
    """

    pairs: int
    half: float | None
    p: float | None

    @property
    def exact(self) -> bool:
        """Whether at least three pairs have the same difference, other than zero. No test is needed then."""
        return self.p is None and self.pairs >= EQUAL_PAIRS and self.mean != 0

    @property
    def significant(self) -> bool:
        """Whether the mean differs significantly from 0. The interval then excludes 0."""
        return self.exact or (self.p is not None and self.p < LEVEL)

    def interval_half(self, level: float) -> float:
        """Return half the interval that covers 1 - level, if there is a deviation between several pairs."""
        return quantile_of_t(1 - level, self.pairs - 1) * (self.std or 0.0) / math.sqrt(self.pairs)


def average(values: Sequence[float]) -> MeanOverSeeds | None:
    """Return the mean and the sample standard deviation (n - 1) of the values, or None without values."""
    return MeanOverSeeds(fmean(values), stdev(values) if len(values) > 1 else None) if values else None


def compare_pairs(before: Mapping[int, float], after: Mapping[int, float]) -> PairedDifference | None:
    """Return after - before over the common seeds, or None without any."""
    seeds = sorted(before.keys() & after.keys())
    differences = [after[seed] - before[seed] for seed in seeds]
    found = average(differences)
    if found is None:
        return None
    rounding = ROUNDING * max(1.0, *(abs(values[seed]) for values in (before, after) for seed in seeds))
    # one pair, or equal up to rounding: there is no deviation to test against
    if found.std is None or max(differences) - min(differences) <= rounding:
        return PairedDifference(0.0 if abs(found.mean) <= rounding else found.mean, found.std, len(seeds), None, None)
    t = found.mean / (found.std / math.sqrt(len(seeds)))
    p = max(0.0, 1.0 - within_t(t, len(seeds) - 1))  # rounding may give a probability above 1
    alone = PairedDifference(found.mean, found.std, len(seeds), None, p)
    return replace(alone, half=alone.interval_half(LEVEL))


def within_t(t: float, freedom: int) -> float:
    """Return the probability that Student's t with this number of degrees of freedom is between -t and t.

    The finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4: scipy, which has it too, takes 143 MB.
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    odd = freedom % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def quantile_of_t(part: float, freedom: int) -> float:
    """Return the t for which `within_t` is `part`, 0 < part < 1, by bisection down to adjacent floats."""
    low, high = 0.0, 1.0
    while within_t(high, freedom) < part:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if within_t(middle, freedom) < part else (low, middle)
    return high
