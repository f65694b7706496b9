"""Means, deviations and the paired t-test against numbers derived by hand."""

import math

import pytest

from raysim.reports.statistics import (
    MeanOverSeeds,
    average,
    beyond_t,
    compare_pairs,
    quantile_of_t,
)


def test_the_deviation_is_the_sample_s() -> None:
    """50, 60, 70: mean 60; squares of the differences 100 + 0 + 100 over n - 1 = 2 give 100, whose root is 10."""
    assert average([50, 60, 70]) == MeanOverSeeds(60, 10)


def test_one_value_has_no_deviation_and_none_no_mean() -> None:
    assert average([42.5]) == MeanOverSeeds(42.5, None)
    assert average([]) is None


def test_the_paired_test_over_common_seeds() -> None:
    """Differences 3, 4, 5: mean 4, deviation 1, t = 4 / (1 / sqrt 3), t^2 = 48.

    With 2 degrees of freedom P(|T| > t) = 1 - t / sqrt(t^2 + 2) = 1 - sqrt(48/50) = 0.0202041. That is 0.05 at
    t^2 = 2 * 0.95^2 / (1 - 0.95^2), so half the interval is sqrt(1.805 / 0.0975 / 3).
    """
    found = compare_pairs({0: 50, 1: 60, 2: 70, 7: 0}, {2: 75, 1: 64, 0: 53, 8: 0})
    assert found is not None
    assert (found.mean, found.std) == (4, 1)
    assert found.half == pytest.approx(math.sqrt(1.805 / 0.0975 / 3), rel=1e-9)
    assert found.p == pytest.approx(1 - math.sqrt(48 / 50), rel=1e-9)


@pytest.mark.parametrize(
    ("before", "after", "std"),
    [({3: 50.0}, {3: 57.0}, None), ({0: 0.1, 1: 0.2, 2: 0.4}, {0: 0.2, 1: 0.3, 2: 0.5}, pytest.approx(0, abs=1e-15))],
    ids=["one pair", "equal differences"],
)
def test_without_a_deviation_there_is_no_p(before: dict[int, float], after: dict[int, float], std: object) -> None:
    found = compare_pairs(before, after)
    assert found is not None
    assert (found.std, found.pairs, found.half, found.p) == (std, len(before), None, None)


@pytest.mark.parametrize(("after", "significant"), [((5.0, 6.0), False), ((5.0, 6.0, 7.0), True), ((4, 5, 6), False)])
def test_equal_differences_are_significant_from_three_pairs_on(after: tuple[float, ...], significant: bool) -> None:
    """Two seeds have equal differences by chance: accuracies on a few hundred images are coarse."""
    found = compare_pairs({0: 4.0, 1: 5.0, 2: 6.0}, dict(enumerate(after)))
    assert found is not None
    assert (found.exact, found.significant) == (significant, significant)


def test_differences_that_only_rounding_makes_are_none() -> None:
    """1 + 2 + ... in another order differs by 1e-15 with each seed, which is no change in each seed."""
    found = compare_pairs({0: 50.0, 1: 60.0, 2: 70.0}, {0: 50 + 7e-15, 1: 60 + 7e-15, 2: 70 + 1.4e-14})
    assert found is not None
    assert (found.mean, found.exact, found.significant) == (0, False, False)


@pytest.mark.parametrize(
    ("freedom", "t"),
    [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (9, 2.26216), (10, 2.22814), (29, 2.04523)],
)
def test_students_t_has_its_tabled_quantiles(freedom: int, t: float) -> None:
    """5% lies beyond t: the column of any table of the distribution, to its five digits or six."""
    assert beyond_t(t, freedom) == pytest.approx(0.05, abs=2e-6)
    assert beyond_t(-t, freedom) == beyond_t(t, freedom)
    assert quantile_of_t(0.05, freedom) == pytest.approx(t, rel=2e-6)


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 7.0, 1e4])
def test_students_t_with_few_degrees_of_freedom_in_closed_form(t: float) -> None:
    """One degree is Cauchy's distribution: 2/pi atan(1 / t) is beyond t. With two it is 1 - t / r, r = sqrt(t^2 + 2).

    That is 2 / (r (r + t)), in which nothing cancels: of a small p all digits are right.
    """
    r = math.sqrt(t**2 + 2)
    assert beyond_t(t, 1) == pytest.approx(2 / math.pi * math.atan2(1, t), rel=1e-12)
    assert beyond_t(t, 2) == pytest.approx(2 / (r * (r + t)), rel=1e-12)


@pytest.mark.parametrize("freedom", [4, 9])
def test_a_tiny_p_of_students_t_is_exact(freedom: int) -> None:
    """Far out, on both sides, the density is c n^((n + 1) / 2) t^-(n + 1) (1 - n (n + 1) / 2t^2 + ...).

    c is gamma((n + 1) / 2) / (gamma(n / 2) sqrt(n pi)). The integral from t on is that of each power of t. The terms
    left out are below 1e-11 at t = 10,000.
    """
    n, t = freedom, 1e4
    c = math.gamma((n + 1) / 2) / (math.gamma(n / 2) * math.sqrt(n * math.pi)) * n ** ((n + 1) / 2)
    expected = 2 * c * (t**-n / n - n * (n + 1) / 2 * t ** -(n + 2) / (n + 2))
    assert expected < 1e-13
    assert beyond_t(t, n) == pytest.approx(expected, rel=1e-9)
    assert quantile_of_t(expected, n) == pytest.approx(t, rel=1e-9)


def test_a_mean_that_only_rounding_makes_is_none() -> None:
    """Of 364 samples, 11 more, 3 fewer and 8 fewer are right: 0 on average, but 3.8e-15 in floats."""
    before, after = {0: 250, 1: 260, 2: 270}, {0: 261, 1: 257, 2: 262}
    found = compare_pairs(*({seed: 100 * (right / 364) for seed, right in one.items()} for one in (before, after)))
    assert found is not None
    assert (found.mean, found.p, found.significant) == (0, pytest.approx(1, abs=1e-14), False)


def test_no_common_seed_is_no_difference() -> None:
    assert compare_pairs({0: 1.0}, {1: 2.0}) is None
