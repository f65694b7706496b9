"""The runs of a sweep, each a valid config: every combination of the grid's values, and the trials of tuned ones."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

from pydantic import BaseModel, ConfigDict

from raysim.config import Config, validate
from raysim.config.comparison import result_settings
from raysim.config.document import Document, dotted
from raysim.engine.compatibility import check_methods
from raysim.sweeps.axes import Axis, AxisValue
from raysim.system.errors import ConfigError

MOST_RUNS = 10_000
SWEEP_FILE = "sweep.yaml"  # in the sweep's directory
SPLIT_KEY = "evaluation.split"  # in which trials differ from the runs that they decide
CONDITION = "search.worst_of"  # the name of finalists' condition among the names of a trial


class Remark(BaseModel):
    """What readers of reports should know about a run: a text, and whether its row has a rank among the others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    ranked: bool = True


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a sweep: its folder below the sweep's, its config, its name on every axis, and its settings.

    A run that is not `decided` `waits_for` the trials in these folders. Until then its config has the first candidates.
    `chosen` are the settings that trials decided, and `at_end` those of them at an end of their list. If these are the
    trials of other values, `chosen_in` names them. `remark` is the sweep's about it. A `trial` decides such settings.
    """

    folder: str
    config: Config
    labels: Mapping[str, str]
    settings: Mapping[str, object]
    trial: bool = False
    waits_for: Sequence[str] = ()
    chosen: str = ""
    at_end: str = ""
    chosen_in: str = ""
    remark: Remark | None = None

    @property
    def decided(self) -> bool:
        """Whether its config is known."""
        return not self.waits_for


Search = Callable[[int, Callable[[int, int, int], Cell]], tuple[list[Cell], int | None]]
"""Receives a number of candidates, and a function from a candidate's, a seed's and a condition's place to a trial.

Returns the trials that are known so far, and the place of the best candidate, or None if that is not known yet.
"""

Transfer = Mapping[str, Mapping[str, AxisValue]]
"""By axis, and by the name of a value that takes another's choices: that other value."""


def combine_values(
    title: str, axes: Sequence[Axis], skipped: Sequence[Mapping[str, set[str]]]
) -> list[dict[str, AxisValue]]:
    """Return every combination of the axes' values that is not skipped, by axis; `title` names the sweep in errors."""
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST_RUNS:
        raise ConfigError(f"{title}: grid: found {count} runs, allowed: at most {MOST_RUNS}")
    made = [
        {axis.name: value for axis, value in zip(axes, values, strict=True)}
        for values in product(*(axis.values for axis in axes))
    ]
    kept = [
        one for one in made if not any(all(one[axis].label in names for axis, names in no.items()) for no in skipped)
    ]
    if not kept:
        raise ConfigError(f"{title}: skip: found every combination of the grid, allowed: combinations that leave runs")
    return kept


def expand_grid(
    title: str,
    base: Document,
    combinations: Sequence[Mapping[str, AxisValue]],
    rated: Sequence[Sequence[Mapping[str, AxisValue]]],
    transfer: Transfer,
    search: Search,
) -> list[Cell]:
    """Return the trials of tuned values, then the runs.

    `rated` has the values of trials, by the condition's place and the seed's.
    """
    first = rated[0][0]
    _refuse_too_many(title, [_tuned_as(values, transfer) for values in combinations], first, len(combinations))
    trials: list[Cell] = []
    runs: list[Cell] = []
    tuned: list[Cell] = []
    searched: dict[str, tuple[list[Cell], int | None]] = {}
    for values in combinations:
        if not any(value.candidates for value in values.values()):
            runs.append(_cell(title, base, values))
            continue
        source = _tuned_as(values, transfer)
        candidates = _candidates(source)
        group = _folder({**source, **first})
        if group not in searched:

            @cache  # the check below and the search make the same ones
            def make(
                place: int, seed: int, condition: int, candidates: Sequence[Mapping[str, AxisValue]] = candidates
            ) -> Cell:
                return replace(_cell(title, base, {**candidates[place], **rated[condition][seed]}), trial=True)

            if len(rated) > 1 and len(candidates) > 1:  # a mistake in a condition is told before the first trial
                _refuse_twins(
                    title, [make(place, 0, at) for place in range(len(candidates)) for at in range(len(rated))]
                )
            searched[group] = search(len(candidates), make)
            trials += searched[group][0]
        cell = _tuned(title, base, values, _candidates(values), *searched[group])
        tuned.append(replace(cell, chosen_in=_name_source(values, source)))
    _refuse_twins(title, [*trials, *runs])
    return [*trials, *runs, *tuned]


def _tuned_as(values: Mapping[str, AxisValue], transfer: Transfer) -> dict[str, AxisValue]:
    """Return the combination that has the trials for a combination: itself, unless it takes another's choices."""
    return {axis: transfer.get(axis, {}).get(value.label, value) for axis, value in values.items()}


def _name_source(values: Mapping[str, AxisValue], source: Mapping[str, AxisValue]) -> str:
    """Return the names of the values in which the combination that has the trials differs, or an empty text."""
    return ", ".join(one.label for axis, one in source.items() if one is not values[axis])


def _candidates(values: Mapping[str, AxisValue]) -> list[dict[str, AxisValue]]:
    """Return a combination with each choice of its tuned values."""
    picked = product(*(value.candidates or [value] for value in values.values()))
    return [dict(zip(values, one, strict=True)) for one in picked]


def _tuned(
    title: str,
    base: Document,
    values: Mapping[str, AxisValue],
    candidates: Sequence[Mapping[str, AxisValue]],
    trials: Sequence[Cell],
    best: int | None,
) -> Cell:
    """Return a run with the best candidate. Its folder and its names do not depend on the candidate."""
    picked = candidates[best or 0]
    named = {name: replace(one, folder=values[name].folder, label=values[name].label) for name, one in picked.items()}
    cell = _cell(title, base, named)
    if best is None:
        return replace(cell, waits_for=[trial.folder for trial in trials])
    chosen = ", ".join(value.tried for value in picked.values() if value.tried)
    return replace(cell, chosen=chosen, at_end=", ".join(value.at_end for value in picked.values() if value.at_end))


def _refuse_too_many(
    title: str, combinations: Sequence[Mapping[str, AxisValue]], rated: Mapping[str, AxisValue], runs: int
) -> None:
    """Refuse a sweep that would take minutes to check. Finalists' further trials do not count.

    `combinations` are those that have trials.
    """
    candidates = {
        _folder({**values, **rated}): math.prod(len(value.candidates) or 1 for value in values.values())
        for values in combinations
    }
    trials = sum(count for count in candidates.values() if count > 1)
    if trials + runs > MOST_RUNS:
        found = f"found {runs} runs and {trials} trials"
        raise ConfigError(f"{title}: {found}, allowed: at most {MOST_RUNS} together; search.trials limits trials")


def _refuse_twins(title: str, cells: Sequence[Cell]) -> None:
    made: dict[str, Cell] = {}
    for cell in cells:
        same = made.setdefault(str(result_settings(cell.config)), cell)
        if same is not cell:
            raise ConfigError(
                f"{title}: the runs '{same.folder}' and '{cell.folder}' are the same in all that changes results, "
                "allowed: runs that differ"
            )


def _folder(values: Mapping[str, AxisValue]) -> str:
    # the runs of all seeds of one setting are in its folder, whichever axis varies slowest; trials are apart
    order = {SPLIT_KEY: 0, "seed": 2}
    return "/".join(values[name].folder for name in sorted(values, key=lambda name: order.get(name, 1)))


def _cell(title: str, base: Document, values: Mapping[str, AxisValue]) -> Cell:
    folder = _folder(values)
    document = Document(base.file, copy.deepcopy(base.values), dict(base.origins))
    settings: dict[str, Any] = {}
    try:
        if folder.partition("/")[0] == SWEEP_FILE:
            raise ConfigError(f"{title}: a run's folder would be {folder}, allowed: another name than {SWEEP_FILE}")
        for keys, set_to, origin in (setting for value in values.values() for setting in value.settings):
            document.put(keys, copy.deepcopy(set_to), origin)
            settings[dotted(keys)] = set_to
        config = validate(document)
    except ConfigError as error:
        raise ConfigError(f"{error} (in the run '{folder}')") from None
    try:
        check_methods(config)
    except ConfigError as error:
        raise ConfigError(f"{title}: {error} (in the run '{folder}')") from None
    return Cell(folder, config, {name: value.label for name, value in values.items()}, settings)
