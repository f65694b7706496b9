"""Mean ranks of methods, with bootstrap intervals over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysim.reports.statistics import LEVEL

Array = npt.NDArray[np.float64]

DRAWS = 5000  # samples of the seeds
SEED = 0  # the same report each time


@dataclass(frozen=True, eq=False)
class MeanRanks:
    """By method: the mean rank, and the ends of its interval."""

    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class RankedSetting:
    """The values of a setting, for ranks.

    Attributes:
        values: [seeds, methods].
        higher_is_better: whether the largest value has rank 1.
        digits: the digits with which means are shown; means that look equal have the same rank.
        counted: the columns of the methods that count, in the same order in all settings.
    """

    values: Array
    higher_is_better: bool
    digits: int
    counted: Sequence[int]

    def rank_means(self, values: Array) -> Array:
        """Return the ranks [..., counted] of the means over seeds of values [..., seeds, methods]."""
        # as text is rounded: NumPy would round 30.05 to 30.0
        shown: Array = np.vectorize(round, otypes=[float])(values.mean(axis=-2), self.digits)
        return rank(shown, self.higher_is_better)[..., self.counted]


def rank(values: Array, higher_is_better: bool) -> Array:
    """Return the ranks of values [..., methods] in each row. The best is 1, and equal ones share the better rank."""
    upward = values if higher_is_better else -values
    ranks: Array = 1.0 + (upward[..., None, :] > upward[..., :, None]).sum(axis=-1)
    return ranks


def rank_over_seeds(values: Array, higher_is_better: bool) -> MeanRanks:
    """Return the means over seeds of the ranks in each seed, of values [seeds, methods]."""
    ranks = rank(values, higher_is_better)
    return _with_interval(ranks.mean(axis=0), _draw(ranks, np.random.default_rng(SEED)).mean(axis=1))


def rank_over_settings(settings: Sequence[RankedSetting]) -> MeanRanks:
    """Return the means over settings of the ranks of the means over seeds. Each setting draws its own seeds.

    The order of the settings does not matter: they draw in the order of their values.
    """
    generator = np.random.default_rng(SEED)
    found, drawn = [], []
    for setting in sorted(settings, key=lambda setting: np.sort(setting.values, axis=None).tolist()):
        found.append(setting.rank_means(setting.values[None]))
        drawn.append(setting.rank_means(_draw(setting.values, generator)))
    return _with_interval(np.mean(found, axis=0)[0], np.mean(drawn, axis=0))


def _draw(values: Array, generator: np.random.Generator) -> Array:
    """Return rows of values [seeds, methods], drawn with replacement: [draws, seeds, methods]."""
    drawn: Array = values[generator.integers(len(values), size=(DRAWS, len(values)))]
    return drawn


def _with_interval(mean: Array, drawn: Array) -> MeanRanks:
    """Return a mean and the percentiles of its draws [draws, methods] (Efron, Ann. Statist. 7, 1979)."""
    low, high = np.percentile(drawn, [50 * LEVEL, 100 - 50 * LEVEL], axis=0)
    return MeanRanks(mean, low, high)
