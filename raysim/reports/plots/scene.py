"""The common data of a setting's plots: its rounds, read once, and the look of each method in the whole report."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from raysim.reports.grouping import ExperimentSetting
from raysim.reports.plots.highlights import Highlights, choose_highlights
from raysim.reports.plots.looks import choose_looks
from raysim.reports.plots.style import Look
from raysim.reports.round_records import RoundRecord
from raysim.reports.task_names import name_tasks

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

    @cached_property
    def task_names(self) -> Sequence[str]:
        """The names of the tasks, or their numbers if the runs' tasks differ or the names are unknown."""
        return name_tasks(self.setting)

    @cached_property
    def labels(self) -> Sequence[str]:
        """The names of the groups, without tuned values."""
        return [group.name for group in self.setting.groups]

    def evaluated(self, protocol: str) -> "Scene":
        """Return the scene of the groups that were evaluated by a protocol."""
        groups = self.setting.groups
        kept = [index for index, group in enumerate(groups) if protocol in group.protocols]
        if len(kept) == len(groups):
            return self
        setting = replace(self.setting, groups=[groups[index] for index in kept])
        return Scene(setting, [self.looks[index] for index in kept])

    def highlights(self, protocol: str) -> Highlights:
        """Return the groups that a protocol's plots highlight."""
        return choose_highlights(self.setting, protocol)


def set_scenes(settings: Sequence[ExperimentSetting]) -> list[Scene]:
    """Return the scenes of a report's settings. The same methods look the same in all of them."""
    return [Scene(setting, looks) for setting, looks in zip(settings, choose_looks(settings), strict=True)]
