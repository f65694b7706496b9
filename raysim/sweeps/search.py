"""The search for a tuned value's best candidate: which are tried, with how many seeds, and which one is the best.

This is random search (Bergstra and Bengio, JMLR 13, 2012) with the same budget for all values. A part of the
combinations is tried with one seed. The best few are tried again with more seeds.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from raysim.config.block import Block, Count
from raysim.config.document import Mistake
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

    def contradictions(self) -> Iterator[Mistake]:
        """Yield a mistake where there are finalists without further seeds, or seeds that no finalist has."""
        if (self.finalists > 1) != (self.seeds > 1):
            found = f"found {self.finalists} with {self.seeds} seed{'s' * (self.seeds > 1)}"
            yield Mistake(("finalists",), f"{found}, allowed: at least 2 of finalists and of seeds, or 1 of both")

    def draw(self, candidates: Sequence[AxisValue]) -> Sequence[AxisValue]:
        """Return the candidates that are tried, in their order.

        Each item of a list is drawn about equally often, as in a Latin hypercube (McKay, Beckman and Conover,
        Technometrics 21, 1979). Candidates with the rarest items come first, and of these the smallest hash of a
        name decides. A sweep therefore draws the same ones every time.
        """
        if self.trials is None or len(candidates) <= self.trials:
            return candidates
        left = sorted(candidates, key=lambda one: hashlib.sha256(one.label.encode()).digest())
        drawn: list[AxisValue] = []
        often = Counter[tuple[object, str]]()
        for _ in range(self.trials):
            following = min(left, key=lambda one: sum(often[item] for item in _items(one)))
            often.update(_items(following))
            left.remove(following)
            drawn.append(following)
        return [one for one in candidates if one in drawn]

    def find_best(self, count: int, make: Callable[[int, int], Cell], rate: Rate) -> tuple[list[Cell], int | None]:
        """Return the trials that are known so far, and the place of the best candidate if they are all done.

        The best has the highest mean rating over its seeds. Of equal ones it has the highest rating with the first
        seed, and of those that are equal there too it is the first. A candidate with a trial that failed is out. If
        all finalists are out, the next best candidates are finalists. A single candidate needs no trial.

        Args:
            count: the number of candidates.
            make: returns the trial of a candidate's place and a seed's place.
            rate: returns a trial's rating.
        """
        if count == 1:
            return [], 0
        trials = [make(place, 0) for place in range(count)]
        ratings: dict[int, list[float | None]] = {place: [rate(trial)] for place, trial in enumerate(trials)}
        means = _average(ratings)
        if means is None:
            return trials, None
        left = sorted(means, key=lambda place: -means[place])
        final: dict[int, float] | None = {}
        while left and final == {}:
            finalists, left = left[: self.finalists], left[self.finalists :]
            for place in finalists:
                again = [make(place, seed) for seed in range(1, self.seeds)]
                trials += again
                ratings[place] += map(rate, again)
            final = _average({place: ratings[place] for place in finalists})
        return trials, max(final, key=final.__getitem__) if final else None


def _items(candidate: AxisValue) -> list[tuple[object, str]]:
    """Return the values of a candidate, each with its key."""
    return [(setting.keys, repr(setting.value)) for setting in candidate.settings]


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
