"""Families of tests: p values and intervals that agree, and the marks of a column.

A family is the set of comparisons that answer one question, such as what one method adds to several baselines. Its p
values have Holm's correction (Scand. J. Statist. 6, 1979). Holm's procedure tests the k-th smallest of m p values at
LEVEL / (m - k + 1), and stops at the first that is not below. An interval covers 1 - LEVEL / (m - k + 1) if its
difference is significant. Otherwise it covers 1 - LEVEL / (m - r), where r differences are significant. It therefore
excludes 0 exactly if the corrected p is below LEVEL.

The intervals are no simultaneous confidence region. The one that belongs to Holm's procedure (Strassburger and Bretz,
Statist. Med. 27, 2008; Guilbaud, Biom. J. 50, 2008) ends at 0 for most significant differences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from raysim.reports.statistics import LEVEL, PairedDifference, compare_pairs

ROUNDING = 1e-9


@dataclass(frozen=True)
class Mark:
    """How a value of a column is marked.

    Attributes:
        best: whether its mean is the best.
        second: whether its mean is the second best.
        worse: whether it is significantly worse than the best.
    """

    best: bool = False
    second: bool = False
    worse: bool = False


def correct_by_holm(found: Sequence[float | None]) -> list[float | None]:
    """Return the p values with Holm's correction. None values do not count."""
    order = sorted((p, index) for index, p in enumerate(found) if p is not None)
    corrected: list[float | None] = [None] * len(found)
    largest = 0.0
    for tested, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - tested) * p))
        corrected[index] = largest
    return corrected


def adjust_family(family: Sequence[PairedDifference | None]) -> list[PairedDifference | None]:
    """Return the differences of a family with corrected p values, and with the intervals that agree with them."""
    alone = [None if one is None else one.p for one in family]
    corrected = correct_by_holm(alone)
    tested = [p for p in alone if p is not None]
    left = sum(p >= LEVEL for p in corrected if p is not None)
    adjusted: list[PairedDifference | None] = []
    for one, p, holm in zip(family, alone, corrected, strict=True):
        if one is None or p is None or holm is None:
            adjusted.append(one)
            continue
        # p values that are equal up to rounding are tested alike, at the level of the first of them
        shares = left if holm >= LEVEL else len(tested) - sum(other < p * (1 - ROUNDING) for other in tested)
        level = LEVEL / shares
        adjusted.append(replace(one, p=holm, half=one.interval_half(level), level=level))
    return adjusted


def mark_column(column: Sequence[Mapping[int, float]], higher_is_better: bool, digits: int) -> list[Mark]:
    """Mark the best and the second best mean of a column, and what is significantly worse than the best.

    The tests are against the best of the columns with the most seeds. No difference from one with a single seed can be
    tested.

    Args:
        column: values by seed; empty ones, and a column with fewer than two others, are not marked.
        higher_is_better: the direction of the values.
        digits: the digits that are shown; means that look equal share a place.
    """
    sign = 1 if higher_is_better else -1
    means = [sign * fmean(values.values()) if values else None for values in column]
    shown = [None if mean is None else round(mean, digits) for mean in means]
    places = sorted({mean for mean in shown if mean is not None}, reverse=True)
    if sum(mean is not None for mean in means) < 2:
        return [Mark() for _ in column]
    return [
        Mark(
            best=mean == places[0],
            second=mean in places[1:2],
            # of two means that look equal, neither is worse
            worse=mean != places[0] and one is not None and one.significant and sign * one.mean < 0,
        )
        for mean, one in zip(shown, compare_with_best(column, higher_is_better), strict=True)
    ]


def compare_with_best(column: Sequence[Mapping[int, float]], higher_is_better: bool) -> list[PairedDifference | None]:
    """Return the corrected differences from the best of the columns with the most seeds, and None for itself."""
    sign = 1 if higher_is_better else -1
    means = [sign * fmean(values.values()) if values else 0.0 for values in column]
    first = max(range(len(means)), key=lambda index: (len(column[index]), means[index]))
    return adjust_family(
        [None if index == first else compare_pairs(column[first], one) for index, one in enumerate(column)]
    )
