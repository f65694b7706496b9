"""How far two settings agree on the order of methods: Spearman's rank correlation, with a bootstrap over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysim.reports.bootstrap import DRAWS, SEED
from raysim.reports.ranks import Ranking
from raysim.reports.statistics import LEVEL

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """Spearman's rho of two settings' orders, and the ends of its interval.

    Attributes:
        methods: how many methods both have.
    """

    methods: int
    rho: float
    low: float
    high: float


def spearman(one: Array, other: Array) -> Array:
    """Return Spearman's rho [...] of values [..., methods]: Pearson's correlation of their ranks."""
    a, b = (_centered_ranks(values) for values in (one, other))
    rho: Array = (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return rho


def _centered_ranks(values: Array) -> Array:
    """Return the ranks of values in each row, minus their mean. Equal values share the mean of their places."""
    below = (values[..., None, :] < values[..., :, None]).sum(-1)
    above = (values[..., None, :] > values[..., :, None]).sum(-1)
    ranks: Array = (below - above) / 2
    return ranks


def agreement(one: Ranking, other: Ranking) -> Agreement:
    """Return how far two settings agree on the methods that both have. Each setting draws its own seeds.

    A method with diverged runs in one setting has no rank there. It counts as the last, or it would be left out for
    the very reason that its choices do not carry over.
    """
    names = [
        name for name in _competing(one) if name in _competing(other) and (name in one.ranks or name in other.ranks)
    ]
    values = [_by_seed(ranking, names) for ranking in (one, other)]
    generator = np.random.default_rng(SEED)
    drawn = [of[generator.integers(len(of), size=(DRAWS, len(of)))].mean(axis=1) for of in values]
    low, high = np.percentile(spearman(drawn[0], drawn[1]), [50 * LEVEL, 100 - 50 * LEVEL])
    first, second = (of.mean(axis=0) for of in values)
    return Agreement(len(names), float(spearman(first, second)), float(low), float(high))


def _competing(ranking: Ranking) -> Sequence[str]:
    return [group.name for group in ranking.groups if group.ranked]


def _by_seed(ranking: Ranking, names: Sequence[str]) -> Array:
    """Return the values [seeds, methods] of these methods; those without a rank have the worst."""
    found = ranking.values_by_seed([name for name in names if name in ranking.ranks])
    worst = -np.inf if found.higher_is_better else np.inf
    values = np.full((len(found.values), len(names)), worst)
    values[:, [name in ranking.ranks for name in names]] = found.values[:, found.counted]
    return values
