"""Means over seeds, paired differences with intervals and tests, and the best of a column."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

LEVEL = 0.05
"""A difference is significant below this p. Intervals cover 1 - LEVEL."""

Mark = Literal["", "best", "tied"]


@dataclass(frozen=True)
class MeanOverSeeds:
    """The mean of some values and their sample standard deviation, None for one value."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class PairedDifference(MeanOverSeeds):
    """The mean of paired differences, their deviation, half their 95% interval (t), and p of the two-sided t-test.

    Half and p are None for one pair, or if all differences are equal.
    """

    half: float | None
    p: float | None

    @property
    def exact(self) -> bool:
        """Whether several pairs have the same difference, other than zero. No test is needed then."""
        return self.p is None and self.std is not None and self.mean != 0


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
    # one pair, or equal up to rounding: there is no deviation to test against
    if found.std is None or max(differences) - min(differences) <= 1e-12 * max(1.0, *map(abs, differences)):
        return PairedDifference(found.mean, found.std, None, None)
    error, freedom = found.std / math.sqrt(len(seeds)), len(seeds) - 1
    p = 1.0 - within_t(found.mean / error, freedom)
    return PairedDifference(found.mean, found.std, quantile_of_t(1 - LEVEL, freedom) * error, p)


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


def correct_by_holm(found: Sequence[float | None]) -> list[float | None]:
    """Return the p values with Holm's correction (Scand. J. Statist. 6, 1979). None values do not count."""
    order = sorted((p, index) for index, p in enumerate(found) if p is not None)
    corrected: list[float | None] = [None] * len(found)
    largest = 0.0
    for tested, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - tested) * p))
        corrected[index] = largest
    return corrected


def mark_best(column: Sequence[Mapping[int, float]], higher_is_better: bool) -> list[Mark]:
    """Mark the best mean of a column, if it is significant; the column's values are by seed.

    It is `best` if it differs significantly from all others (paired test, corrected over the column). Otherwise it and
    those that do not differ are `tied`. If none differs, or there is one seed, nothing is marked.
    """
    means = [fmean(values.values()) if values else None for values in column]
    known = [index for index, mean in enumerate(means) if mean is not None]
    marks: list[Mark] = [""] * len(column)
    if len(known) < 2:
        return marks
    first = max(known, key=lambda index: (means[index] or 0.0) * (1 if higher_is_better else -1))
    others = [index for index in known if index != first]
    found = [compare_pairs(column[index], column[first]) for index in others]
    corrected = correct_by_holm([None if one is None else one.p for one in found])
    tied = [
        index
        for index, one, p in zip(others, found, corrected, strict=True)
        if not (one and one.exact) and (p is None or p >= LEVEL)
    ]
    if len(tied) < len(others):
        marks[first] = "tied" if tied else "best"
        for index in tied:
            marks[index] = "tied"
    return marks
