"""Methods by settings: the average metric of each method in each setting, and its ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.tables import (
    NOTHING,
    Quantity,
    ReportTable,
    TableCell,
    explain_marks,
    learning_of,
    tabulate_column,
)

MANY = 12  # methods that a sweep's order would not help to find
FEWEST = 3  # methods that are worth a rank


@dataclass(frozen=True, eq=False)
class Ranking:
    """The groups of a setting by their average metric, in the protocol of most runs.

    Attributes:
        setting: the setting.
    """

    setting: ExperimentSetting

    @property
    def protocol(self) -> str:
        """The protocol by which the groups are ranked."""
        return self.setting.protocols[0]

    @property
    def quantity(self) -> Quantity:
        """The quantity by which they are ranked, with fewer digits than in the tables of results."""
        average = learning_of(self.setting.metric)[0]
        return replace(average, digits=1) if average.unit == "%" else average

    @property
    def groups(self) -> Sequence[MethodGroup]:
        """The groups that were evaluated by the protocol."""
        return self.setting.evaluated(self.protocol).groups

    def value(self, group: MethodGroup) -> float:
        """Return a group's mean as shown, so that groups that look equal have the same rank."""
        found = self.quantity.average_group(group, self.protocol)
        return float("nan") if found is None else float(self.quantity.show(found.mean))

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """By name: the rank of every group that is no bound and has all seeds."""
        seeds = max(len(group.runs) for group in self.groups)
        ranked = [group for group in self.groups if not group.bound and len(group.runs) == seeds]
        sign = 1 if self.quantity.higher_is_better else -1
        values = {group.name: sign * self.value(group) for group in ranked}
        return {name: 1 + sum(other > value for other in values.values()) for name, value in values.items()}


def mean_ranks(rankings: Sequence[Ranking]) -> dict[str, float]:
    """Return by name the mean rank of every method that is ranked in all settings."""
    names = dict.fromkeys(name for ranking in rankings for name in ranking.ranks)
    return {
        name: fmean(ranking.ranks[name] for ranking in rankings)
        for name in names
        if all(name in ranking.ranks for ranking in rankings)
    }


def tabulate_overview(settings: Sequence[ExperimentSetting]) -> ReportTable | None:
    """Return the methods by settings, or None for one setting or for settings of different metrics."""
    if len(settings) < 2 or len({setting.metric for setting in settings}) > 1:
        return None
    rankings = [*map(Ranking, settings)]
    names = [*dict.fromkeys(group.name for ranking in rankings for group in ranking.groups)]
    ranks = mean_ranks(rankings)
    if len(names) > MANY:
        names.sort(key=lambda name: (name not in ranks, ranks.get(name, 0.0)))
    columns = [_column(ranking, names) for ranking in rankings]
    rows = [[TableCell(name), *cells] for name, cells in zip(names, zip(*columns, strict=True), strict=True)]
    headings = ["methods", *(f"{ranking.setting.number}: {ranking.setting.title}" for ranking in rankings)]
    notes = explain_marks([cell for row in rows for cell in row])
    if len(ranks) >= FEWEST:
        headings.append("mean rank")
        rows = [[*row, TableCell(f"{ranks[row[0].text]:.1f}" if row[0].text in ranks else NOTHING)] for row in rows]
        notes.append("Ranks are of methods with all seeds, without bounds.")
    quantity = rankings[0].quantity
    caption = f"{quantity.title}: mean ± standard deviation over seeds, by method and setting"
    return ReportTable(caption, headings, rows, " ".join(notes))


def _column(ranking: Ranking, names: Sequence[str]) -> list[TableCell]:
    """Return the cells of a setting, marked as its table of results is."""
    found = tabulate_column(ranking.groups, ranking.quantity, ranking.protocol)
    cells = {group.name: cell for group, cell in zip(ranking.groups, found, strict=True)}
    return [cells.get(name, TableCell(NOTHING)) for name in names]
