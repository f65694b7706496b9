"""Methods by settings: the average metric of each method in each setting, and its ranks."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np

from raysim.reports.bootstrap import RankedSetting, rank_over_settings
from raysim.reports.families import mark_column
from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.quantity_tables import (
    NOTHING,
    Quantity,
    ReportTable,
    TableCell,
    explain_marks,
    learning_of,
    tabulate_column,
)

Interval = tuple[float, float]

RANKED = "Ranks are of methods with the same seeds, without bounds. Their intervals are of a bootstrap over seeds."
GROUPED = (
    "Methods of a group share the mean of its ranks. A group ends before the first method that is significantly worse "
    "than the best of the group."
)
STANDING = f"Mean rank over the settings, with its 95% interval; 1 is the best. {RANKED}"
MEAN_RANK = "mean rank"
MANY = 12  # methods that a sweep's order would not help to find
WIDEST = 8  # settings with a column each in a table of a few methods
FEWEST = 3  # methods that are worth a rank


@dataclass(frozen=True, eq=False)
class Ranking:
    """The groups of a setting by their average metric.

    Attributes:
        setting: the setting.
        by: the protocol by which the groups are ranked; by default that of most runs.
    """

    setting: ExperimentSetting
    by: str | None = None

    @property
    def protocol(self) -> str:
        """The protocol by which the groups are ranked."""
        return self.by or self.setting.protocols[0]

    @property
    def quantity(self) -> Quantity:
        """The quantity by which they are ranked, with fewer digits than in the tables of results."""
        average = learning_of(self.setting.metric)[0]
        return replace(average, digits=1) if average.unit == "%" else average

    @property
    def groups(self) -> Sequence[MethodGroup]:
        """The groups that were evaluated by the protocol."""
        return self.setting.evaluated(self.protocol).groups

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the ranked groups: the largest set of seeds that a group has, and of these the most common."""
        counts = Counter(_seeds_of(group) for group in self.groups if group.ranked)
        return max(counts, key=lambda seeds: (len(seeds), counts[seeds]), default=())

    @cached_property
    def ranked(self) -> Sequence[MethodGroup]:
        """The groups that have a rank: no bounds, none that the sweep excludes, and none with other seeds."""
        return [group for group in self.groups if group.ranked and _seeds_of(group) == self.seeds]

    @cached_property
    def best_first(self) -> Sequence[MethodGroup]:
        """The groups that compete, or all if none does: the best mean first, and groups with other seeds last."""
        sign = -1 if self.quantity.higher_is_better else 1
        competing = [group for group in self.groups if group.ranked] or [*self.groups]

        def place(group: MethodGroup) -> tuple[bool, float]:
            found = self.quantity.average_group(group, self.protocol)
            return _seeds_of(group) != self.seeds, math.inf if found is None else sign * found.mean

        return sorted(competing, key=place)

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """By name: the rank of every ranked group. Means that look equal have the same rank."""
        names = [group.name for group in self.ranked]
        found = self.values_by_seed(names)
        return dict(zip(names, map(int, found.rank_means(found.values)), strict=True)) if names else {}

    @cached_property
    def intervals(self) -> Mapping[str, Interval]:
        """By name: the interval of the rank, a bootstrap over seeds; empty with fewer than two seeds."""
        return interval_of_ranks([self], [*self.ranks])

    @cached_property
    def tiers(self) -> Mapping[str, int]:
        """By name: the tier of every ranked group, from 1.

        A tier begins with the best of the groups that are left. In the order of their means, it ends before the first
        that is significantly worse. The test is a paired t-test over the seeds, with Holm's correction over all that
        are left.
        """
        by_seed = {group.name: self.quantity.by_seed(group, self.protocol) for group in self.ranked}
        # of means that look equal, too, the better one comes first: the order of the sweep's rows must not matter
        left = sorted(by_seed, key=lambda name: fmean(by_seed[name].values()), reverse=self.quantity.higher_is_better)
        found = dict[str, int]()
        while left:
            columns = [by_seed[name] for name in left]
            marks = mark_column(columns, self.quantity.higher_is_better, self.quantity.digits)
            size = next((place for place, mark in enumerate(marks) if mark.worse), len(left))
            tier = max(found.values(), default=0) + 1
            found |= dict.fromkeys(left[:size], tier)
            left = left[size:]
        return found

    @cached_property
    def shared_ranks(self) -> Mapping[str, float]:
        """By name: the mean of the places that a group's tier has, the same for all of the tier."""
        sizes = Counter(self.tiers.values())
        before = {tier: sum(sizes[other] for other in range(1, tier)) for tier in sizes}
        return {name: before[tier] + (sizes[tier] + 1) / 2 for name, tier in self.tiers.items()}

    def values_by_seed(self, counted: Sequence[str]) -> RankedSetting:
        """Return the values of the ranked groups for a bootstrap; `counted` are the names in question."""
        values = [self.quantity.by_seed(group, self.protocol) for group in self.ranked]
        columns = [[of_group[seed] for seed in self.seeds] for of_group in values]
        order = [group.name for group in self.ranked]
        places = [order.index(name) for name in counted]
        return RankedSetting(np.asarray(columns).T, self.quantity.higher_is_better, self.quantity.digits, places)


@dataclass(frozen=True)
class MeanRank:
    """A method's ranks in all settings: their mean, its interval if there are seeds, and the mean of shared ranks."""

    mean: float
    interval: Interval | None
    shared: float

    @property
    def text(self) -> str:
        """The mean with its interval, such as `3.0 (2.8 to 4.6)`."""
        return f"{self.mean:.1f}" + (" ({:.1f} to {:.1f})".format(*self.interval) if self.interval else "")


def mean_ranks(rankings: Sequence[Ranking]) -> dict[str, MeanRank]:
    """Return by name the mean ranks of every method that is ranked in all settings."""
    every = dict.fromkeys(name for ranking in rankings for name in ranking.ranks)
    names = [name for name in every if all(name in ranking.ranks for ranking in rankings)]
    intervals = interval_of_ranks(rankings, names)
    return {
        name: MeanRank(
            fmean(ranking.ranks[name] for ranking in rankings),
            intervals.get(name),
            fmean(ranking.shared_ranks[name] for ranking in rankings),
        )
        for name in names
    }


def interval_of_ranks(rankings: Sequence[Ranking], names: Sequence[str]) -> dict[str, Interval]:
    """Return by name the interval of the mean rank; empty if a setting has fewer than two seeds."""
    if not names or any(len(ranking.seeds) < 2 for ranking in rankings):
        return {}
    found = rank_over_settings([ranking.values_by_seed(names) for ranking in rankings])
    return {name: (float(found.low[place]), float(found.high[place])) for place, name in enumerate(names)}


@dataclass(frozen=True, eq=False)
class Standings:
    """The methods of several settings with the same metric.

    Attributes:
        rankings: the ranking of each setting.
    """

    rankings: Sequence[Ranking]

    @cached_property
    def ranks(self) -> Mapping[str, MeanRank]:
        """By name: the mean ranks of the methods that are ranked in all settings; empty if these are too few."""
        found = mean_ranks(self.rankings)
        return found if len(found) >= FEWEST else {}

    @cached_property
    def cells(self) -> Mapping[str, Sequence[TableCell]]:
        """By name, in the order of the sweeps: a method's cells, one for each setting."""
        names = [*dict.fromkeys(group.name for ranking in self.rankings for group in ranking.groups)]
        columns = [_column(ranking, names) for ranking in self.rankings]
        return dict(zip(names, zip(*columns, strict=True), strict=True))

    @cached_property
    def best_first(self) -> Sequence[str]:
        """The names by mean rank, or without ranks by the number of settings in which a method is best."""
        if not self.ranks:
            return sorted(self.cells, key=lambda name: -self.wins[name])
        return sorted(self.cells, key=lambda name: self.ranks[name].mean if name in self.ranks else math.inf)

    @cached_property
    def wins(self) -> Mapping[str, int]:
        """By name: the number of settings in which a method has the best mean."""
        return {name: sum(cell.best for cell in cells) for name, cells in self.cells.items()}

    @cached_property
    def labels(self) -> Sequence[str]:
        """The label of each setting's accuracies; one label if it is that of all settings."""
        labels = [ranking.setting.label(ranking.protocol) for ranking in self.rankings]
        return labels[:1] if len(set(labels)) == 1 else labels

    @property
    def caption(self) -> str:
        """What the tables have, with the label that all settings share."""
        label = self.labels if len(self.labels) == 1 else []
        title = ", ".join([self.rankings[0].quantity.title, *label])
        return f"{title}: mean ± standard deviation over seeds, by method and setting"

    @property
    def headings(self) -> Sequence[str]:
        """The headings of the names and of the settings."""
        titles = [f"{ranking.setting.number}: {ranking.setting.title}" for ranking in self.rankings]
        return [
            "methods",
            *(titles if len(self.labels) == 1 else map(", ".join, zip(titles, self.labels, strict=True))),
        ]

    @property
    def table(self) -> ReportTable:
        """The table of all methods, with the mean of their ranks and of those of their groups."""
        names, ranks = [*self.cells], self.ranks
        if len(names) > MANY:
            names.sort(key=lambda name: (ranks[name].shared, ranks[name].mean) if name in ranks else (math.inf, 0.0))
        headings, rows = [*self.headings], [[TableCell(name), *self.cells[name]] for name in names]
        notes = explain_marks([cell for row in rows for cell in row])
        if self.ranks:
            headings += [MEAN_RANK, "95% interval", "mean rank of groups"]
            rows = [[*row, *(TableCell(text) for text in _show_ranks(self.ranks.get(row[0].text)))] for row in rows]
            notes += [RANKED, GROUPED]
        notes += list_remarks([ranking.setting for ranking in self.rankings])
        return ReportTable(self.caption, headings, rows, " ".join(notes))

    def tabulate_standing(self, most: int | None = None) -> ReportTable:
        """Return the table of the first methods with their mean rank, by which they are sorted.

        Of many settings, the table of a few methods has the number in which a method is best.
        """
        names = self.best_first[:most]
        if most is not None and len(self.rankings) > WIDEST:
            headings = [f"best in, of {len(self.rankings)} settings"]
            columns = {name: [TableCell(str(self.wins[name]))] for name in names}
        else:
            headings, columns = [*self.headings[1:]], {name: [*self.cells[name]] for name in names}
        if self.ranks:
            headings.insert(0, MEAN_RANK)
            for name, cells in columns.items():
                cells.insert(0, TableCell(self.ranks[name].text if name in self.ranks else NOTHING))
        rows = [[TableCell(name), *cells] for name, cells in columns.items()]
        notes = [STANDING] if self.ranks else []
        notes += explain_marks([cell for row in rows for cell in row])
        notes += list_remarks([ranking.setting for ranking in self.rankings]) if most is None else []
        first = f"The {len(names)} best of {len(self.cells)} methods, " * (len(names) < len(self.cells))
        return ReportTable(first + self.caption, [self.headings[0], *headings], rows, " ".join(notes))


def compare_settings(settings: Sequence[ExperimentSetting]) -> Standings | None:
    """Return the methods of several settings, or None for one setting or for settings of different metrics."""
    if len(settings) < 2 or len({setting.metric for setting in settings}) > 1:
        return None
    return Standings([*map(Ranking, settings)])


def tabulate_overview(settings: Sequence[ExperimentSetting]) -> ReportTable | None:
    """Return the table of the methods by settings, or None for one setting or for settings of different metrics."""
    found = compare_settings(settings)
    return found.table if found else None


def _seeds_of(group: MethodGroup) -> tuple[int, ...]:
    return tuple(sorted(run.summary.seed for run in group.runs))


def list_remarks(settings: Sequence[ExperimentSetting]) -> list[str]:
    """Return a sentence for each remark of sweeps about rows, with the settings if it is not about all of them.

    Settings that take what others have chosen come first.
    """
    taken: dict[str, list[str]] = {}
    for setting in settings:
        for source in dict.fromkeys(run.chosen_in for group in setting.groups for run in group.runs if run.chosen_in):
            taken.setdefault(source, []).append(setting.title)
    where: dict[tuple[str, str, bool], list[str]] = {}
    for setting in settings:
        for group in setting.groups:
            if group.remark:
                key = (group.name, group.remark, group.ranked or group.bound)
                where.setdefault(key, []).append(setting.title)
    lines = [f"The tuned values in {join_words(titles)} are those chosen in {of}." for of, titles in taken.items()]
    for (name, text, ranked), titles in where.items():
        everywhere = len(titles) == sum(any(group.name == name for group in one.groups) for one in settings)
        about = name if everywhere else f"{name} in {join_words(titles)}"
        lines.append(f"{about}: {text}." if ranked else f"{about} is not ranked: {text}.")
    return lines


def join_words(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _show_ranks(found: MeanRank | None) -> tuple[str, str, str]:
    if found is None:
        return NOTHING, NOTHING, NOTHING
    interval = "{:.1f} to {:.1f}".format(*found.interval) if found.interval else NOTHING
    return f"{found.mean:.1f}", interval, f"{found.shared:.1f}"


def _column(ranking: Ranking, names: Sequence[str]) -> list[TableCell]:
    """Return the cells of a setting, marked as its table of results is."""
    found = tabulate_column(ranking.groups, ranking.quantity, ranking.protocol)
    cells = {group.name: cell for group, cell in zip(ranking.groups, found, strict=True)}
    return [cells.get(name, TableCell(NOTHING)) for name in names]
