"""What a report and each of its settings begin with: the best methods, and what a test says about the first of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raysim.reports.families import compare_with_best
from raysim.reports.gains import gains_by_labels, show_p
from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.naming import join_names
from raysim.reports.quantity_tables import (
    NOTHING,
    Quantity,
    ReportTable,
    TableCell,
    explain_marks,
    learning_of,
    tabulate_column,
)
from raysim.reports.ranks import Ranking, Standings, join_words
from raysim.reports.statistics import LEVEL, PairedDifference

MOST = 5  # rows of the table


@dataclass(frozen=True, eq=False)
class Margin:
    """The difference of a method from another one, in the average metric."""

    group: MethodGroup
    base: MethodGroup
    found: PairedDifference
    quantity: Quantity

    @property
    def difference(self) -> str:
        """The difference with its interval, such as `+14.70 (+2.10 to +27.30)`."""
        mean = self.quantity.show(self.found.mean, sign=True)
        return mean if self.found.half is None else f"{mean} ({' to '.join(self._ends)})"

    @property
    def verdict(self) -> str:
        """What the test says, such as `not significant, p 0.210`."""
        if self.found.half is None and not self.found.exact:
            return "no test: one seed" if self.found.pairs == 1 else "no test: the same in each seed"
        p = "" if self.found.p is None else f", p {show_p(self.found.p)}"
        return ("significant" if self.found.significant else "not significant") + p

    @property
    def sentence(self) -> str:
        """The difference in words, with its interval, its seeds and the verdict."""
        unit = "points" if self.quantity.unit == "%" else self.quantity.unit
        mean = " ".join(filter(None, (self.quantity.show(self.found.mean, sign=True), unit)))
        interval = "" if self.found.half is None else f", {name_interval([self.found])} {' to '.join(self._ends)}"
        seeds = f"{self.found.pairs} seed{'s' * (self.found.pairs > 1)}"
        what = f"{mean} of {self.quantity.heading} compared with {self.base.name}"
        return f"{self.group.name}: {what}{interval}, {seeds}: {self.verdict}."

    @property
    def _ends(self) -> tuple[str, str]:
        half = self.found.half or 0.0
        low, high = self.found.mean - half, self.found.mean + half
        return self.quantity.show(low, sign=True), self.quantity.show(high, sign=True)


def name_interval(found: Sequence[PairedDifference | None]) -> str:
    """Return what the intervals of differences are called: they are wider in a family of several tests."""
    alone = all(one is None or one.level == LEVEL for one in found)
    return "95% interval" if alone else "interval with Holm's correction"


@dataclass(frozen=True, eq=False)
class Lead:
    """The result of a setting, or of several ones.

    Attributes:
        best: the name of the best method.
        sentences: the result in words, the most important sentence first.
        table: the best methods.
        average: of one setting: the average metric of the best method, with its unit and the protocol.
        margins: of one setting: the best method compared with the one that it extends, or with the second best.
        asked: of one setting: the sentences on the pairs of rows that the user wants to compare.
    """

    best: str
    sentences: Sequence[str]
    table: ReportTable
    average: str = ""
    margins: Sequence[Margin] = ()
    asked: Sequence[str] = ()


def lead_setting(setting: ExperimentSetting, asked: Sequence[tuple[str, str]] = ()) -> Lead:
    """Return what a setting begins with; `asked` are the pairs of rows that the user wants to compare."""
    protocol = setting.protocols[0]
    groups = setting.evaluated(protocol).groups
    average = learning_of(setting.metric)[0]
    if len(groups) == 1:
        return _lead_alone(setting, groups[0])
    ranking = Ranking(setting, protocol)
    best = ranking.best_first
    gains = gains_by_labels(setting, average, protocol, asked)
    base = _find_base(groups, best[0], gains)
    margins = [] if base is None else [Margin(best[0], base, gains[best[0].label, base.label], average)]
    first = [group for group in best if group.name in ranking.ranks] or best  # those with the seeds of most
    if len(first) > 1 and first[1] is not base:
        margins += _compare_with_second(first, average, protocol)
    wanted = [
        Margin(group, other, gains[group.label, other.label], average)
        for group in groups
        for other in groups
        if _names(group, other) & {*asked}
        and (group.label, other.label) in gains
        and (group, other) not in [(one.group, one.base) for one in margins]
    ]
    label = setting.label(protocol)
    means = [average.show_mean(average.average_group(group, protocol)) for group in first]
    value = f"{means[0]} {average.unit}".strip()
    equal = [group.name for group, mean in zip(first, means, strict=True) if mean.split()[0] == means[0].split()[0]]
    apart = [group.name for group in best if group not in first]
    subject = f"{equal[0]} is" if len(equal) == 1 else f"{join_names(equal)} are equal and"
    seeds = f"{len(best[0].runs)} seed{'s' * (len(best[0].runs) > 1)}"
    compared = f"{len(first)} methods" + " with the same seeds" * bool(apart)
    sentences = [f"{subject} the best of {compared}: {average.heading} {value} ({label}, {seeds})."]
    if apart:
        sentences.append(f"{join_names(apart)} {'has' if len(apart) == 1 else 'have'} other seeds, so no rank.")
    sentences += [margin.sentence for margin in (*margins, *wanted)]
    asked_for = [margin.sentence for margin in (*margins, *wanted) if _names(margin.group, margin.base) & {*asked}]
    table = _tabulate_best(setting, best[:MOST], base, gains)
    return Lead(equal[0], sentences, table, f"{value}, {label}", margins, asked_for)


def _names(group: MethodGroup, other: MethodGroup) -> set[tuple[str, str]]:
    """Return what a user may call a pair."""
    return {(group.label, other.label), (group.name, other.name)}


def _find_base(
    groups: Sequence[MethodGroup], best: MethodGroup, gains: Mapping[tuple[str, str], PairedDifference]
) -> MethodGroup | None:
    """Return the group that the best one extends: that without methods, if it is among several."""
    bases = [group for group in groups if (best.label, group.label) in gains]
    return min(bases, key=lambda group: len(group.methods), default=None)


def _compare_with_second(best: Sequence[MethodGroup], average: Quantity, protocol: str) -> list[Margin]:
    """Return the difference of the best from the second best; its family are all differences from the best."""
    column = [average.by_seed(group, protocol) for group in best]
    itself, second, *_ = compare_with_best(column, average.higher_is_better)
    if itself is not None or second is None:  # the tests are against another group, with more seeds
        return []
    return [Margin(best[0], best[1], replace(second, mean=-second.mean), average)]


def _tabulate_best(
    setting: ExperimentSetting,
    best: Sequence[MethodGroup],
    base: MethodGroup | None,
    gains: Mapping[tuple[str, str], PairedDifference],
) -> ReportTable:
    """Return the first groups with their averages, their difference from the base, and forgetting."""
    protocol, groups = setting.protocols[0], setting.evaluated(setting.protocols[0]).groups
    average, forgetting, _ = learning_of(setting.metric)
    headings, columns = ["methods", average.title], [_cells(groups, best, average, protocol)]
    if base is not None:
        unit = "points" if average.unit == "%" else average.unit
        found = [gains.get((group.label, base.label)) for group in best]
        headings.append(f"{', '.join(filter(None, (f'compared with {base.name}', unit)))} ({name_interval(found)})")
        shown = [NOTHING if one is None else Margin(base, base, one, average).difference for one in found]
        columns.append([TableCell(text) for text in shown])
    headings += [forgetting.title, "seeds"]
    columns += [_cells(groups, best, forgetting, protocol), [TableCell(group.count) for group in best]]
    rows = [[TableCell(group.name), *cells] for group, cells in zip(best, zip(*columns, strict=True), strict=True)]
    competing = sum(group.ranked for group in groups) or len(groups)
    shown_of = f"the {len(best)} best of {competing} methods" if len(best) < competing else "the best first"
    note = " ".join(explain_marks([cell for row in rows for cell in row]))
    return ReportTable(f"{setting.label(protocol)}: {shown_of}, by {average.heading}", headings, rows, note)


def _cells(
    groups: Sequence[MethodGroup], best: Sequence[MethodGroup], quantity: Quantity, protocol: str
) -> list[TableCell]:
    """Return the cells of the best groups, marked as in the table of all groups."""
    marked = dict(zip([group.label for group in groups], tabulate_column(groups, quantity, protocol), strict=True))
    return [marked[group.label] for group in best]


def _lead_alone(setting: ExperimentSetting, group: MethodGroup) -> Lead:
    """Return what the setting of a single method begins with: its numbers by protocol."""
    learning, protocol = learning_of(setting.metric), setting.protocols[0]
    average, forgetting, _ = learning
    means = [quantity.show_mean(quantity.average_group(group, protocol)) for quantity in (average, forgetting)]
    shown = [f"{mean} {average.unit}".strip() for mean in means]
    seeds, tasks = [run.summary.seed for run in group.runs], setting.tasks
    where = f"{setting.label(protocol)}, {tasks} task{'s' * (tasks > 1)}"
    told = [f"{average.heading} {shown[0]}", f"{forgetting.heading} {shown[1]}"]
    first = f"{group.label}: {', '.join(told[: 1 + (means[1] != NOTHING)])} ({where})."
    alone = f"Seed {seeds[0]} alone: one seed gives no interval."
    several = f"Mean ± standard deviation over {len(seeds)} seeds."
    rows = [
        [
            TableCell(setting.label(by)),
            *(TableCell(quantity.show_mean(quantity.average_group(group, by))) for quantity in learning),
        ]
        for by in setting.protocols
    ]
    headings = ["test", *(quantity.title for quantity in learning)]
    table = ReportTable(f"Results of {group.label}", headings, rows)
    sentences = [first, several if len(seeds) > 1 else alone]
    return Lead(group.name, sentences, table, f"{shown[0]}, {setting.label(protocol)}")


def lead_settings(standings: Standings) -> Lead:
    """Return what a report of several settings begins with: the best methods by rank, or by how often they are best."""
    count, best = len(standings.rankings), standings.best_first[0]
    alike = [best]
    if standings.ranks:
        alike = [name for name, found in standings.ranks.items() if found.mean == standings.ranks[best].mean]
        sentences = _say_rank(alike, standings)
    elif not standings.wins[best] and len(standings.cells) > 1:
        sentences = [f"No two methods are in the same one of {count} settings, so there is no best one."]
    elif len(standings.cells) > 1:
        alike = [name for name, wins in standings.wins.items() if wins == standings.wins[best]]
        subject = f"{best} is" if len(alike) == 1 else f"{join_words(_shorten(alike))} are each"
        sentences = [f"{subject} the best method in {standings.wins[best]} of {count} settings."]
    else:
        sentences = [f"{best}: {_give_range(standings)} in {count} settings."]
    margins = _sum_up_margins(best, standings) if len(alike) == 1 else []
    return Lead(best, [*sentences, *margins], standings.tabulate_standing(MOST))


def _shorten(names: Sequence[str]) -> list[str]:
    """Return the first names, and how many more there are."""
    return [*names[:MOST], *[f"{len(names) - MOST} more"] * (len(names) > MOST)]


def _say_rank(best: Sequence[str], standings: Standings) -> list[str]:
    """Return sentences on the best mean rank: its interval, and the methods with overlapping intervals."""
    ranks, settings = standings.ranks, len(standings.rankings)
    subject = f"{best[0]} has" if len(best) == 1 else f"{join_words(_shorten(best))} have"
    first = f"{subject} the best mean rank of {len(ranks)} methods that are in all {settings} settings"
    found = ranks[best[0]]
    if found.interval is None or len(best) > 1:
        return [f"{first}: {found.mean:.1f}."]
    low, high = found.interval
    sentences = [f"{first}: {found.mean:.1f}, 95% interval {low:.1f} to {high:.1f}."]
    others = [(name, ranks[name].interval) for name in standings.best_first if name in ranks and name not in best]
    close = [name for name, interval in others if interval is not None and interval[0] <= high]
    if close:
        intervals = f"interval{'s' * (len(close) > 1)}"
        sentences.append(f"Its interval overlaps with the {intervals} of {join_words(_shorten(close))}.")
    return sentences


def _give_range(standings: Standings) -> str:
    """Return the least and the largest average over the settings of a single method."""
    quantity = standings.rankings[0].quantity
    found = [quantity.average_group(group, one.protocol) for one in standings.rankings for group in one.groups]
    means = [quantity.show(end) for end in sorted(mean.mean for mean in found if mean is not None)]
    return f"{quantity.heading} {' to '.join(dict.fromkeys((means[0], means[-1])))} {quantity.unit}".strip()


def _sum_up_margins(name: str, standings: Standings) -> list[str]:
    """Return a sentence on how a method differs from the one without methods, if settings have both."""
    margins: list[Margin] = []
    for ranking in standings.rankings:
        gains = gains_by_labels(ranking.setting, ranking.quantity, ranking.protocol)
        margins += [
            Margin(group, plain, gains[group.label, plain.label], ranking.quantity)
            for group in ranking.groups
            for plain in ranking.groups
            if group.name == name and not plain.methods and (group.label, plain.label) in gains
        ][:1]
    if not margins:
        return []
    quantity, means = margins[0].quantity, [one.found.mean for one in margins]
    better = [one for one in margins if (one.found.mean > 0) == quantity.higher_is_better and one.found.mean != 0]
    significant = sum(one.found.significant for one in better)
    counts = f"better in {len(better)} of {len(margins)} settings, significantly in {significant}"
    unit = "points" if quantity.unit == "%" else quantity.unit
    size = " ".join(filter(None, (quantity.show(max(means), sign=True), unit)))
    least = f"{quantity.show(min(means), sign=True)} to " * (len(set(means)) > 1)
    sizes = f"{least}{size} of {quantity.heading}"
    return [f"Compared with {margins[0].base.name}, {name} is {counts}: {sizes}."]
