"""The tables, without a format: quantities, their means over seeds, and paired differences."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from raysim.objectives import Metric
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.naming import derive_label, show_bare
from raysim.reports.reading import Methods
from raysim.reports.statistics import (
    MeanOverSeeds,
    PairedDifference,
    average,
    compare_pairs,
    correct_by_holm,
    mark_best,
)

NOTHING = "-"
TIED = "†"
TEST = "paired t-test over common seeds with Holm's correction"


@dataclass(frozen=True)
class Quantity:
    """A number of a run, which is a column of the tables.

    `scale` converts it from the unit in summary.json (fractions, bytes, seconds) to `unit`. `block` is the part of the
    summary that has its key by protocol; None is the summary itself.
    """

    key: str
    heading: str
    unit: str
    scale: float
    digits: int
    higher_is_better: bool
    block: Literal["evaluation", "per_client"] | None = "evaluation"

    @property
    def title(self) -> str:
        """The heading with its unit."""
        return f"{self.heading}, {self.unit}" if self.unit else self.heading

    def by_seed(self, group: MethodGroup, protocol: str) -> dict[int, float]:
        """Return a group's values by seed, in the shown unit."""
        summaries = [run.summary for run in group.runs]
        blocks = [(getattr(one, self.block) or {}).get(protocol, {}) if self.block else vars(one) for one in summaries]
        found = {one.seed: block.get(self.key) for one, block in zip(summaries, blocks, strict=True)}
        return {seed: self.scale * float(value) for seed, value in found.items() if value is not None}

    def average_group(self, group: MethodGroup, protocol: str) -> MeanOverSeeds | None:
        """Return a group's mean over seeds in the shown unit, or None without values."""
        return average([*self.by_seed(group, protocol).values()])

    def show(self, number: float, sign: bool = False) -> str:
        """Return a number as text, with the digits of this quantity."""
        return format(number, f"{'+' if sign else ''}.{self.digits}f")

    def show_mean(self, found: MeanOverSeeds | None) -> str:
        """Return `mean ± std`, the mean alone if there is no deviation, or a dash."""
        if found is None:
            return NOTHING
        return self.show(found.mean) + ("" if found.std is None else f" ± {self.show(found.std)}")


ACCURACY = Quantity("average_accuracy", "average accuracy", "%", 100, 2, True)
FORGETTING = Quantity("forgetting", "forgetting", "%", 100, 2, False)
FINAL_FORGETTING = Quantity("final_forgetting", "forgetting since the task's end", "%", 100, 2, False)
BACKWARD_TRANSFER = Quantity("backward_transfer", "backward transfer", "%", 100, 2, True)
LEARNING = (ACCURACY, FORGETTING, BACKWARD_TRANSFER)
INCREMENTAL = Quantity("average_incremental_accuracy", "average incremental accuracy", "%", 100, 2, True)
INCREMENTAL_BY_TASK = replace(INCREMENTAL, key=f"{INCREMENTAL.key}_by_task", heading=f"{INCREMENTAL.heading} by task")
OVER_SAMPLES = Quantity("final_accuracy", "accuracy over all samples", "%", 100, 2, True)
OVER_TIME = (INCREMENTAL, INCREMENTAL_BY_TASK, OVER_SAMPLES)
DIGITS = 3  # of a metric whose unit is not %
FAIRNESS = (
    Quantity("mean", "clients' mean", "%", 100, 2, True, "per_client"),
    Quantity("worst", "worst client", "%", 100, 2, True, "per_client"),
    Quantity("std", "deviation over clients", "%", 100, 2, False, "per_client"),
)
COSTS = (
    Quantity("seconds_per_round", "time per round", "s", 1, 3, False, None),
    Quantity("bytes_up", "sent up", "MiB", 2**-20, 2, False, None),
    Quantity("bytes_down", "sent down", "MiB", 2**-20, 2, False, None),
)


@dataclass(frozen=True)
class TableCell:
    """A text, and whether it is significantly the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A table. Its first `texts` columns are words, the others numbers.

    `verdict` is a one-line result, and `note` explains how to read the table.
    """

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    note: str = ""
    texts: int = 1
    verdict: str = ""


def learning_of(metric: Metric) -> Sequence[Quantity]:
    """Return LEARNING in the name, unit and direction of a metric."""
    return [express(quantity, metric) for quantity in LEARNING]


def express(quantity: Quantity, metric: Metric) -> Quantity:
    """Return a quantity in the name, unit and direction of a metric."""
    if metric == ACCURACY_METRIC:
        return quantity
    if "accuracy" in quantity.heading:
        heading = quantity.heading.replace("accuracy", metric.name)
        quantity = replace(quantity, heading=heading, higher_is_better=metric.higher_is_better)
    digits = quantity.digits if metric.unit == "%" else DIGITS
    return replace(quantity, unit=metric.unit, scale=metric.scale, digits=digits)


def over_time_of(setting: ExperimentSetting, protocol: str) -> Sequence[Quantity]:
    """Return those of OVER_TIME that all runs of a setting have; by task only if not all have it over samples."""

    def known(quantity: Quantity) -> bool:
        return all(len(quantity.by_seed(group, protocol)) == len(group.runs) for group in setting.groups)

    incremental = INCREMENTAL if known(INCREMENTAL) else INCREMENTAL_BY_TASK
    return [express(quantity, setting.metric) for quantity in (incremental, OVER_SAMPLES) if known(quantity)]


def tabulate_settings(settings: Sequence[ExperimentSetting]) -> ReportTable | None:
    """Return the keys in which the settings differ, a row for each setting, or None for one setting."""
    keys = dict.fromkeys(key for setting in settings for key in setting.differing)
    if len(settings) < 2 or not keys:
        return None
    rows = [
        [
            TableCell(f"{setting.number}: {setting.title}"),
            *(TableCell(show_bare(setting.differing[key]) if key in setting.differing else NOTHING) for key in keys),
        ]
        for setting in settings
    ]
    return ReportTable("What differs between the settings", ("setting", *keys), rows)


def tabulate_results(setting: ExperimentSetting, protocol: str) -> ReportTable:
    """Return mean and sample standard deviation over seeds of every quantity, by group.

    There are columns about clients if a run of the setting has evaluation.per_client.
    """
    fairness = FAIRNESS if any(protocol in (run.summary.per_client or {}) for run in setting.runs) else ()
    quantities = (*learning_of(setting.metric), *over_time_of(setting, protocol), *fairness, *COSTS)
    columns = [
        [TableCell(group.label) for group in setting.groups],
        [TableCell(str(len(group.runs))) for group in setting.groups],
        *(_column(setting.groups, quantity, protocol) for quantity in quantities),
    ]
    headings = ("methods", "seeds", *(quantity.title for quantity in quantities))
    alike = len({tuple(run.summary.seed for run in group.runs) for group in setting.groups}) == 1
    notes = [] if alike else ["Not all groups have the same seeds; changes by an added method are over common ones."]
    cells = [cell for column in columns for cell in column]
    if any(cell.best for cell in cells):
        notes.append(f"Bold: better than all others ({TEST} over the column, 5%).")
    if any(cell.text.endswith(TIED) for cell in cells):
        notes.append(f"{TIED}: the best, and those not significantly different from it ({TEST} over the column, 5%).")
    caption = f"{setting.label(protocol)}: mean ± standard deviation over seeds"
    return ReportTable(caption, headings, [*zip(*columns, strict=True)], " ".join(notes))


def tabulate_gains(setting: ExperimentSetting, protocol: str) -> ReportTable | None:
    """Return the change by an added method, for all pairs of groups that differ by one, or None without pairs."""
    among, learning = [group.methods for group in setting.groups], learning_of(setting.metric)
    pairs = [
        (added, base, extended)
        for base in setting.groups
        for extended in setting.groups
        if (added := _added(base.methods, extended.methods)) is not None
    ]
    if not pairs:
        return None
    found = [
        [compare_pairs(quantity.by_seed(base, protocol), quantity.by_seed(extended, protocol)) for quantity in learning]
        for _, base, extended in pairs
    ]
    columns = [[None if one is None else one.p for one in column] for column in zip(*found, strict=True)]
    corrected = [*zip(*map(correct_by_holm, columns), strict=True)]
    rows = [
        (
            TableCell(derive_label(added, among)),
            TableCell(base.label),
            TableCell(str(count_common_seeds(base, extended))),
            *map(TableCell, map(show_change, learning, row, p)),
        )
        for (added, base, extended), row, p in zip(pairs, found, corrected, strict=True)
    ]
    headings = ("added", "to", "common seeds", *(quantity.title for quantity in learning))
    caption = f"{setting.label(protocol)}: what each added method changes"
    note = f"Mean of the paired differences and its 95% interval; p of the two-sided {TEST} over the column."
    return ReportTable(caption, headings, rows, note, texts=2)


def show_change(quantity: Quantity, found: PairedDifference | None, p: float | None) -> str:
    """Return a mean of paired differences with its 95% interval and p, if there are any, or a dash."""
    if found is None:
        return NOTHING
    mean = quantity.show(found.mean, sign=True)
    if found.half is None or p is None:
        return mean
    ends = (quantity.show(end, sign=True) for end in (found.mean - found.half, found.mean + found.half))
    return f"{mean} ({' to '.join(ends)}), p {'< 0.001' if p < 0.001 else format(p, '.3f')}"


def count_common_seeds(base: MethodGroup, extended: MethodGroup) -> int:
    """Return the number of seeds that two groups share."""
    return len({run.summary.seed for run in base.runs} & {run.summary.seed for run in extended.runs})


def _column(groups: Sequence[MethodGroup], quantity: Quantity, protocol: str) -> list[TableCell]:
    marks = mark_best([quantity.by_seed(group, protocol) for group in groups], quantity.higher_is_better)
    means = [quantity.show_mean(quantity.average_group(group, protocol)) for group in groups]
    return [
        TableCell(f"{mean} {TIED}" if mark == "tied" else mean, mark == "best")
        for mean, mark in zip(means, marks, strict=True)
    ]


def _added(base: Methods, extended: Methods) -> Methods | None:
    """Return the single method that `extended` has in addition to `base`, or None if they differ otherwise."""
    added = [name for name in extended if name not in base]
    if len(added) != 1:
        return None
    rest = [(name, knobs) for name, knobs in extended.items() if name != added[0]]
    return {added[0]: extended[added[0]]} if rest == list(base.items()) else None
