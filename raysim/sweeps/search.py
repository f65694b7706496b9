"""The search for a tuned value's best candidate: which are tried, with how many seeds, and which one is the best.

This is random search (Bergstra and Bengio, JMLR 13, 2012) with the same budget for all values. A part of the
combinations is tried with one seed. The best few are tried again with more seeds.
"""

import hashlib
import math
from collections.abc import Callable, Sequence

from raysim.config.block import Block, Count
from raysim.sweeps.axes import AxisValue
from raysim.sweeps.cells import Cell

Rate = Callable[[Cell], float | None]
"""Returns the rating of a trial: larger is better, -inf if it failed, and None if it is yet to be carried out."""


class SearchBudget(Block):
    """The trials of each tuned value."""

    trials: Count | None = None
    """The most candidates that are tried; of more, as many are drawn at random. By default all are tried."""

    finalists: Count = 1
    """How many of the best candidates are tried again, with further seeds."""

    seeds: Count = 1
    """The seeds of the finalists' trials: the first ones of the axis seed. All other candidates have the first one."""

    def draw(self, candidates: Sequence[AxisValue]) -> Sequence[AxisValue]:
        """Return the candidates that are tried, in their order.

        The order of the draw is that of hashes of their names. Most of those that were drawn from shorter lists are
        therefore drawn from longer ones, too, and their trials count again.
        """
        if self.trials is None:
            return candidates
        drawn = sorted(candidates, key=lambda one: hashlib.sha256(one.label.encode()).digest())[: self.trials]
        return [one for one in candidates if one in drawn]

    def find_best(self, count: int, make: Callable[[int, int], Cell], rate: Rate) -> tuple[list[Cell], int | None]:
        """Return the trials that are known so far, and the place of the best candidate if they are all done.

        The best has the highest mean rating over its seeds, and is the first of equal ones. A candidate with a trial
        that failed is out.

        Args:
            count: the number of candidates.
            make: returns the trial of a candidate's place and a seed's place.
            rate: returns a trial's rating.
        """
        trials = [make(place, 0) for place in range(count)]
        ratings: dict[int, list[float | None]] = {place: [rate(trial)] for place, trial in enumerate(trials)}
        means = _average(ratings)
        if means is None:
            return trials, None
        finalists = sorted(means, key=lambda place: -means[place])[: self.finalists]
        for place in finalists:
            again = [make(place, seed) for seed in range(1, self.seeds)]
            trials += again
            ratings[place] += map(rate, again)
        final = _average({place: ratings[place] for place in finalists})
        return trials, max(final, key=lambda place: final[place], default=None) if final else None


def _average(ratings: dict[int, list[float | None]]) -> dict[int, float] | None:
    """Return the means of those without a failed trial, or None if a trial is yet to be carried out."""
    means: dict[int, float] = {}
    for place, found in ratings.items():
        done = [one for one in found if one is not None]
        if len(done) < len(found):
            return None
        if -math.inf not in done:
            means[place] = sum(done) / len(done)
    return means
