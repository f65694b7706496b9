"""The common data of a setting's plots: its rounds, read once, and the look of each method in the whole report."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.plots.style import Look, choose_look
from raysim.reports.round_records import RoundRecord

Rounds = Sequence[RoundRecord]


@dataclass(frozen=True, eq=False)
class Scene:
    """A setting, and the look of each of its groups."""

    setting: ExperimentSetting
    looks: Sequence[Look]

    @cached_property
    def courses(self) -> Sequence[Sequence[Rounds]]:
        """The rounds of every run of every group. Raises ConfigError: a rounds.jsonl is missing or broken."""
        return [[run.rounds() for run in group.runs] for group in self.setting.groups]


def set_scenes(settings: Sequence[ExperimentSetting]) -> list[Scene]:
    """Return the scenes of a report's settings. The same methods look the same in all of them.

    Methods are the same if their names are, and their hyperparameters too if a setting has them more than once.
    """
    names = [Counter(tuple(group.methods) for group in setting.groups) for setting in settings]
    repeated = {methods for counts in names for methods, count in counts.items() if count > 1}
    numbers: dict[str, int] = {}

    def look(group: MethodGroup) -> Look:
        said = json.dumps([*(group.methods.items() if tuple(group.methods) in repeated else group.methods)])
        return choose_look(numbers.setdefault(said, len(numbers)))

    return [Scene(setting, [look(group) for group in setting.groups]) for setting in settings]
