"""Spearman's rho of two orders, by its formula without ties and by hand with one."""

from types import SimpleNamespace

import numpy as np
import pytest
from rank_agreement import agreement, spearman

from raysim.reports.bootstrap import RankedSetting


def test_without_ties_it_is_the_formula_of_squared_differences() -> None:
    # ranks 1 2 3 4 5 and 2 1 4 3 5: d² = 1 + 1 + 1 + 1 + 0 = 4, and rho = 1 - 6 * 4 / (5 * 24) = 0.8
    one, other = np.array([0.1, 0.2, 0.3, 0.4, 0.5]), np.array([7.0, 3.0, 90.0, 11.0, 91.0])
    assert spearman(one, other) == pytest.approx(0.8)
    assert spearman(np.stack([one, one]), np.stack([one, -one])) == pytest.approx([1.0, -1.0])


def test_equal_values_share_the_mean_of_their_places() -> None:
    # ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4, minus 2.5: (-1.5, 0, 0, 1.5) and (-1.5, -0.5, 0.5, 1.5)
    # their product is 4.5, the squares sum to 4.5 and 5: rho = 4.5 / sqrt(22.5)
    found = spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert found == pytest.approx(4.5 / 22.5**0.5)


class Ranked:
    """A ranking of methods a, b, ... by their values [seeds, methods]. Those of `diverged` have no rank."""

    def __init__(self, values: list[list[float]], names: str = "abcde", diverged: str = "") -> None:
        self.values, self.ranks = np.array(values), dict.fromkeys(names[: len(values[0])], 0)
        self.groups = [SimpleNamespace(name=name, ranked=True) for name in (*self.ranks, *diverged)]

    def values_by_seed(self, names: list[str]) -> RankedSetting:
        return RankedSetting(self.values, True, 1, [[*self.ranks].index(name) for name in names])


def test_seeds_that_agree_leave_no_doubt_and_others_an_interval() -> None:
    sure = Ranked([[1, 2, 3, 4], [2, 3, 4, 5], [1, 3, 5, 7]])
    found = agreement(sure, sure)
    assert (found.methods, found.rho, found.low, found.high) == (4, 1, 1, 1)
    # with one seed twice, and the other never, the order is 1 2 3 4 or 4 3 2 1
    doubtful = Ranked([[1, 2, 3, 4], [4.5, 3, 2, 1]])
    found = agreement(sure, doubtful)
    assert (found.low, found.high) == (-1, 1)


def test_only_methods_of_both_count_whatever_their_order() -> None:
    one, other = Ranked([[1, 2, 3, 4]], "abcd"), Ranked([[9, 30, 20, 10]], "xcba")
    assert agreement(one, other).methods == 3
    assert agreement(one, other).rho == pytest.approx(1)


def test_a_method_whose_runs_diverged_is_the_last() -> None:
    # ranks 1 2 3 4 and 2 3 4 1: d² = 1 + 1 + 1 + 9 = 12, and rho = 1 - 6 * 12 / (4 * 15) = -0.2
    one, other = Ranked([[1, 2, 3, 4]], "abcd"), Ranked([[7, 8, 9]], "abc", diverged="d")
    for found in (agreement(one, other), agreement(other, one)):
        assert (found.methods, found.rho) == (4, pytest.approx(-0.2))


def test_a_method_that_diverged_in_both_settings_does_not_count() -> None:
    one, other = Ranked([[1, 2, 3]], "abc", diverged="d"), Ranked([[7, 8, 9]], "abc", diverged="d")
    assert agreement(one, other).methods == 3
