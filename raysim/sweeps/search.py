"""The search for a tuned value's best candidate: which are tried, with how many seeds, and which one is the best.

This is random search (Bergstra and Bengio, JMLR 13, 2012) with the same budget for all values. A part of the
combinations is tried with one seed. The best few are tried again with more seeds, and under further conditions. What is
best on the tuned data may fail on others.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from raysim.config.block import Allowed, Block, Count
from raysim.config.document import Mistake
from raysim.sweeps.axes import AxisValue
from raysim.sweeps.cells import Cell

Rate = Callable[[Cell], float | None]
"""Returns the rating of a trial: larger is better, -inf if it failed, and None if it is yet to be carried out."""

Make = Callable[[int, int, int], Cell]
"""Returns the trial of a candidate's place, a seed's place, and a condition's place; condition 0 is the row's own."""


class SearchBudget(Block):
    """The trials of each tuned value."""

    trials: Count | None = None
    """The most candidates that are tried; of more, as many are drawn at random. By default all are tried."""

    finalists: Count = 1
    """How many of the best candidates are tried again, with further seeds."""

    seeds: Count = 1
    """The seeds of the finalists' trials: the first ones of the axis seed. All other candidates have the first one."""

    worst_of: Annotated[
        dict[str, dict[str, object]],
        Allowed("by name, a block of config keys, such as {scaled: {dataset.input_scale: 1.5}}"),
    ] = Field(default={})
    """By name, further conditions of the finalists' trials: config keys. A finalist's worst condition rates it."""

    transfer: Annotated[
        dict[str, dict[str, str]],
        Allowed("by axis, names of its values, such as {setting: {usps: mnist}}: usps takes what mnist has chosen"),
    ] = Field(default={})
    """By axis: values whose runs have no trials, each with the value whose trials choose for it."""

    def contradictions(self) -> Iterator[Mistake]:
        """Yield a mistake where finalists have no further trials, or further trials have no finalists."""
        if (self.finalists > 1) != (self.seeds > 1 or bool(self.worst_of)):
            found = f"found {self.finalists} with {self.seeds} seed{'s' * (self.seeds > 1)}"
            found += f" and {len(self.worst_of)} of worst_of" * bool(self.worst_of)
            allowed = "at least 2 of finalists and of seeds, or 1 of both; or at least 2 finalists with worst_of"
            yield Mistake(("finalists",), f"{found}, allowed: {allowed}")

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

    def find_best(self, count: int, make: Make, rate: Rate) -> tuple[list[Cell], int | None]:
        """Return the trials that are known so far, and the place of the best candidate if they are all done.

        The best has the highest rating of all finalists: its mean over the seeds, in the condition where this is least.
        Of equal ones it has the highest rating with the first seed, and of those that are equal there too it is the
        first. A candidate with a trial that failed is out. If all finalists are out, the next best candidates are
        finalists. A single candidate needs no trial.

        Args:
            count: the number of candidates.
            make: returns a trial.
            rate: returns a trial's rating.
        """
        if count == 1:
            return [], 0
        trials = [make(place, 0, 0) for place in range(count)]
        ratings = {place: rate(trial) for place, trial in enumerate(trials)}
        means = _rate_all({place: [[rating]] for place, rating in ratings.items()})
        if means is None:
            return trials, None
        left = sorted(means, key=lambda place: -means[place])
        final: dict[int, float] | None = {}
        while left and final == {}:
            finalists, left = left[: self.finalists], left[self.finalists :]
            again = {place: self._rate_again(place, ratings[place], make, rate, trials) for place in finalists}
            final = _rate_all(again)
        return trials, max(final, key=final.__getitem__) if final else None

    def _rate_again(
        self, place: int, first: float | None, make: Make, rate: Rate, trials: list[Cell]
    ) -> list[list[float | None]]:
        """Return a finalist's ratings by condition and seed, and add its trials to those that are known.

        `first` is that of its trial with the first seed in the row's own condition.
        """
        rated: list[list[float | None]] = []
        for condition in range(1 + len(self.worst_of)):
            further = [make(place, seed, condition) for seed in range(0 if condition else 1, self.seeds)]
            trials += further
            rated.append([*([] if condition else [first]), *map(rate, further)])
        return rated


def _items(candidate: AxisValue) -> list[tuple[object, str]]:
    """Return the values of a candidate, each with its key."""
    return [(setting.keys, repr(setting.value)) for setting in candidate.settings]


def _rate_all(ratings: Mapping[int, Sequence[Sequence[float | None]]]) -> dict[int, float] | None:
    """Return each candidate's least mean over the seeds of a condition, or None if a trial is yet to be carried out.

    Candidates with a failed trial are left out.
    """
    rated: dict[int, float] = {}
    for place, conditions in ratings.items():
        means = list[float]()
        for found in conditions:
            done = [one for one in found if one is not None]
            if len(done) < len(found):
                return None
            means.append(sum(done) / len(done))
        if -math.inf not in means:
            rated[place] = min(means)
    return rated
