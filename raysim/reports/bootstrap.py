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


def rank(values: Array, higher_is_better: bool) -> Array:
    """Return the ranks of values [seeds, methods] in each row. The best is 1, and equal ones share their mean rank."""
    upward = values if higher_is_better else -values
    better = (upward[:, None, :] > upward[:, :, None]).sum(axis=2)
    equal = (upward[:, None, :] == upward[:, :, None]).sum(axis=2)
    ranks: Array = 1.0 + better + (equal - 1) / 2
    return ranks


def average_ranks(settings: Sequence[Array]) -> MeanRanks:
    """Return the means over seeds and settings of ranks [seeds, methods], a matrix for each setting.

    The interval covers 1 - LEVEL of the means over seeds that are drawn with replacement, in each setting separately
    (the percentile bootstrap: Efron, Ann. Statist. 7, 1979).
    """
    generator = np.random.default_rng(SEED)
    drawn = np.mean([ranks[generator.integers(len(ranks), size=(DRAWS, len(ranks)))].mean(1) for ranks in settings], 0)
    low, high = np.percentile(drawn, [50 * LEVEL, 100 - 50 * LEVEL], axis=0)
    return MeanRanks(np.mean([ranks.mean(axis=0) for ranks in settings], axis=0), low, high)
