"""Means over seeds, and what the difference between two groups is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Summary:
    """The mean of n values and their sample standard deviation, None for one value."""

    mean: float
    std: float | None
    n: int


@dataclass(frozen=True)
class Difference(Summary):
    """The mean of n paired differences, their deviation, and p of the two-sided paired t-test.

    p is None where there is nothing to test: one pair, or differences that are all the same.
    """

    p: float | None


def summary(values: Sequence[float]) -> Summary | None:
    """Return the mean and the sample standard deviation (n - 1) of the values, None where there are none."""
    if not values:
        return None
    return Summary(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def paired(before: Mapping[int, float], after: Mapping[int, float]) -> Difference | None:
    """Return after - before over the seeds that both have, None where they share none."""
    seeds = sorted(before.keys() & after.keys())
    found = summary([after[seed] - before[seed] for seed in seeds])
    if found is None:
        return None
    p = _p([before[seed] for seed in seeds], [after[seed] for seed in seeds])
    return Difference(found.mean, found.std, found.n, p)


def _p(before: Sequence[float], after: Sequence[float]) -> float | None:
    differences = [b - a for a, b in zip(before, after, strict=True)]
    if max(differences) - min(differences) <= 1e-12 * max(1.0, *map(abs, differences)):
        return None  # one pair, or equal up to rounding: there is no deviation to test against
    from scipy import stats  # a second to import

    return float(stats.ttest_rel(after, before).pvalue)
