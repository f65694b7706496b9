"""Families of tests: Holm's correction, intervals that agree with it, and the marks of a column, by hand.

With three seeds, t has two degrees of freedom: p = 1 - t / sqrt(t^2 + 2), and 1 - a lies within
sqrt(2 (1 - a)^2 / (1 - (1 - a)^2)).
"""

import math
import random

import pytest

from raysim.reports.families import Mark, adjust_family, correct_by_holm, mark_column
from raysim.reports.statistics import PairedDifference, compare_pairs

BEST, SECOND, WORSE, PLAIN = Mark(best=True), Mark(second=True), Mark(worse=True), Mark()


def difference(mean: float, spread: float) -> PairedDifference:
    """mean - spread, mean, mean + spread: the deviation is `spread`, its error spread / sqrt 3."""
    found = compare_pairs(dict.fromkeys(range(3), 0.0), {0: mean - spread, 1: mean, 2: mean + spread})
    assert found is not None
    return found


def p_of(mean: float, spread: float) -> float:
    t = mean / (spread / math.sqrt(3))
    return 1 - t / math.sqrt(t * t + 2)


def half_of(spread: float, level: float) -> float:
    within = 1 - level
    return math.sqrt(2 * within**2 / (1 - within**2)) * spread / math.sqrt(3)


def test_holms_correction_by_hand() -> None:
    """0.01, 0.03, 0.04 times 3, 2, 1 are 0.03, 0.06, 0.04; no p is below a smaller one's, so the last is 0.06."""
    corrected = correct_by_holm([0.04, 0.01, None, 0.03])
    assert corrected == [pytest.approx(0.06), pytest.approx(0.03), None, pytest.approx(0.06)]
    assert correct_by_holm([0.6, 0.9]) == [1.0, 1.0]


def test_intervals_have_the_level_of_their_own_test() -> None:
    """p is 0.0033, 0.0131, 0.0202 and 0.23 alone; times 4, 3, 2, 1: 0.013, 0.039, 0.0404 and 0.23.

    Three are significant, so their intervals are at 0.05 / 4, / 3 and / 2, and that of the fourth at 0.05 / 1.
    """
    pairs = [(4.0, 1.0), (10.0, 1.0), (3.0, 3.0), (20.0, 4.0)]  # not in the order of their p
    found = adjust_family([*(difference(*pair) for pair in pairs), None])
    expected = [
        (2 * p_of(4, 1), 0.05 / 2),
        (4 * p_of(10, 1), 0.05 / 4),
        (p_of(3, 3), 0.05),
        (3 * p_of(20, 4), 0.05 / 3),
    ]
    for one, (_, spread), (p, level) in zip(found, pairs, expected, strict=False):
        assert one is not None
        assert one.p == pytest.approx(p, rel=1e-9)
        assert one.half == pytest.approx(half_of(spread, level), rel=1e-9)
    assert found[-1] is None


def test_what_comes_after_the_first_that_is_not_significant_has_its_level() -> None:
    """p 0.0202 twice and 0.0131, times 3 and 2: 0.039, then 0.0404. With a fourth of 0.0202, 0.0131 times 4 is 0.052,
    so nothing is significant, though 0.0202 alone is: all four intervals are at 0.05 / 4 and have 0 inside."""
    found = adjust_family([difference(20, 4), difference(4, 1), difference(4, 1)])
    assert [one.significant for one in found if one] == [True, True, True]
    assert [one.half for one in found if one][1:] == [pytest.approx(half_of(1, 0.05 / 2))] * 2  # equal ones alike
    found = adjust_family([difference(20, 4), difference(4, 1), difference(4, 1), difference(4, 1)])
    assert [one.p for one in found if one] == [pytest.approx(4 * p_of(20, 4))] + [pytest.approx(3 * p_of(4, 1))] * 3
    assert [one.half for one in found if one] == [pytest.approx(half_of(s, 0.05 / 4)) for s in (4, 1, 1, 1)]


def test_an_interval_excludes_0_exactly_where_p_is_below_5_percent() -> None:
    draw = random.Random(0)
    told = set()
    for _ in range(300):
        family = [
            compare_pairs(dict.fromkeys(range(seeds), 0.0), {seed: draw.gauss(mean, 1) for seed in range(seeds)})
            for seeds, mean in [(draw.choice((2, 3, 5)), draw.choice((0, 1, 3, 10))) for _ in range(draw.randint(1, 6))]
        ]
        for one in adjust_family(family):
            assert one is not None
            assert one.p is not None
            assert one.half is not None
            assert (abs(one.mean) > one.half) == (one.p < 0.05) == one.significant
            told.add(one.significant)
    assert told == {True, False}


def test_a_single_comparison_stays_as_it_is() -> None:
    alone = difference(4, 1)
    assert adjust_family([alone, None]) == [alone, None]


def seeds(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def marks(*column: dict[int, float], higher: bool = True, digits: int = 2) -> list[Mark]:
    return mark_column(column, higher, digits)


def test_the_best_and_the_second_are_marked_and_what_is_significantly_worse() -> None:
    """Against 60, 60, 60: 50, 49, 51 has t = 10 / (1 / sqrt 3), p = 1 - sqrt(300/302) = 0.0033, doubled by Holm 0.0066;
    and 57, 60, 54 has t = 3 / (3 / sqrt 3), p = 1 - sqrt(3/5) = 0.23."""
    best, worse, near = seeds(60, 60, 60), seeds(50, 49, 51), seeds(57, 60, 54)
    assert marks(worse, best) == [Mark(second=True, worse=True), BEST]
    assert marks(worse, best, higher=False) == [BEST, Mark(second=True, worse=True)]
    assert marks(worse, near, best) == [WORSE, SECOND, BEST]
    assert marks({}, best, near) == [PLAIN, BEST, SECOND]
    assert marks(best, {}) == [PLAIN, PLAIN]  # nothing to compare with
    assert marks(seeds(60), seeds(50), seeds(40)) == [BEST, SECOND, PLAIN]  # one seed: no test


def test_a_column_with_fewer_seeds_takes_no_other_s_test() -> None:
    """As above, 50, 49, 51 are worse than 60, 60, 60, though 70 with one seed is the best."""
    best, worse = seeds(60, 60, 60), seeds(50, 49, 51)
    assert marks(seeds(70), worse, best) == [BEST, WORSE, SECOND]


def test_holm_decides_what_is_worse() -> None:
    """t = 20 / (4 / sqrt 3), p = 1 - sqrt(75/77) = 0.0131: times three 0.039, times four 0.052."""
    best, low = seeds(60, 60, 60), seeds(40, 36, 44)
    assert [one.worse for one in marks(best, low, low, low)] == [False, True, True, True]
    assert [one.worse for one in marks(best, low, low, low, low)] == [False] * 5


def test_means_that_look_equal_share_a_place() -> None:
    """60.004 and 59.996 are shown as 60.00, and differ by the same in every seed."""
    first, same, other = seeds(60.004, 60.004, 60.004), seeds(59.996, 59.996, 59.996), seeds(59, 59, 59)
    assert marks(first, same, other) == [BEST, BEST, Mark(second=True, worse=True)]
    assert marks(first, same, other, digits=3) == [BEST, Mark(second=True, worse=True), WORSE]


def test_a_mean_that_looks_like_the_best_is_in_the_family() -> None:
    """60 against 40, 33 and 47: t = 20 / (7 / sqrt 3), p = 1 - sqrt(24.49 / 26.49) = 0.0385, doubled by Holm 0.077.

    59.999 is the other one: its differences from 60 are 0.002, -0.004 and 0.005.
    """
    best, same, low = seeds(60, 60, 60), seeds(59.998, 60.004, 59.995), seeds(40, 33, 47)
    assert marks(best, low) == [BEST, Mark(second=True, worse=True)]
    assert marks(best, same, low) == [BEST, BEST, SECOND]


def test_large_effects_over_many_seeds_have_a_p_of_at_least_zero() -> None:
    """The probability within t rounds to 1 or just above it, and no interval is at a level that is divided by 0."""
    draw = random.Random(0)
    for pairs in range(5, 16):
        for _ in range(40):
            alone = compare_pairs(
                dict.fromkeys(range(pairs), 0.0), {seed: draw.gauss(30, 0.5) for seed in range(pairs)}
            )
            assert alone is not None
            (found,) = adjust_family([alone])
            assert found is not None
            assert found.p is not None
            assert 0 <= found.p < 1e-4
            assert found.significant
