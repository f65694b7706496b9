"""Means over seeds, and paired differences with their intervals and tests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

import numpy as np

LEVEL = 0.05
"""A difference is significant below this p. Intervals cover 1 - LEVEL."""
ROUNDING = 1e-12
"""The relative size of a difference that only rounding makes."""
EQUAL_PAIRS = 3
"""Equal differences in so many pairs are significant without a test. Two can be equal by chance."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(100)


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
        level: the interval covers 1 - level.
    """

    pairs: int
    half: float | None
    p: float | None
    level: float = LEVEL

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
        return quantile_of_t(level, self.pairs - 1) * (self.std or 0.0) / math.sqrt(self.pairs)


def average(values: Sequence[float]) -> MeanOverSeeds | None:
    """Return the mean and the sample standard deviation (n - 1) of the values, or None without values."""
    return MeanOverSeeds(fmean(values), stdev(values) if len(values) > 1 else None) if values else None


def interval_of_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the ends of the interval of Student's t that covers the mean with 1 - LEVEL, or None for one value."""
    found = average(values)
    if found is None or found.std is None:
        return None
    half = quantile_of_t(LEVEL, len(values) - 1) * found.std / math.sqrt(len(values))
    return found.mean - half, found.mean + half


def compare_pairs(before: Mapping[int, float], after: Mapping[int, float]) -> PairedDifference | None:
    """Return after - before over the common seeds, or None without any."""
    seeds = sorted(before.keys() & after.keys())
    differences = [after[seed] - before[seed] for seed in seeds]
    found = average(differences)
    if found is None:
        return None
    rounding = ROUNDING * max(1.0, *(abs(values[seed]) for values in (before, after) for seed in seeds))
    mean = 0.0 if abs(found.mean) <= rounding else found.mean
    # one pair, or equal up to rounding: there is no deviation to test against
    if found.std is None or max(differences) - min(differences) <= rounding:
        return PairedDifference(mean, found.std, len(seeds), None, None)
    t = mean / (found.std / math.sqrt(len(seeds)))
    alone = PairedDifference(mean, found.std, len(seeds), None, beyond_t(t, len(seeds) - 1))
    return replace(alone, half=alone.interval_half(LEVEL))


def beyond_t(t: float, freedom: int) -> float:
    """Return the probability that Student's t with this number of degrees of freedom n is not between -t and t.

    With t = sqrt(n) / tan(u), the tail is an integral of sin(u)^(n - 1), here by Gauss and Legendre's rule. Its terms
    are positive, so that a small p is as exact as a large one. scipy, which has it too, takes 143 MB.
    """
    end = math.atan2(math.sqrt(freedom), abs(t))
    powers = np.sin(end * (1 + NODES) / 2) ** (freedom - 1)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return min(1.0, scale * end * float(WEIGHTS @ powers))


def quantile_of_t(level: float, freedom: int) -> float:
    """Return the t for which `beyond_t` is `level`, 0 < level < 1, by bisection down to adjacent floats."""
    low, high = 0.0, 1.0
    while beyond_t(high, freedom) > level:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if beyond_t(middle, freedom) > level else (low, middle)
    return high
