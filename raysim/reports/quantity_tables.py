"""The tables, without a format: quantities, their means over seeds, and paired differences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from textwrap import wrap
from typing import Literal

from raysim.objectives import Metric
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.reports.families import Mark, mark_column
from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.naming import show_bare
from raysim.reports.statistics import MeanOverSeeds, average
from raysim.system.errors import single_line

NOTHING = "-"
WORSE = "†"
TEST = "paired t-test over common seeds with Holm's correction"
UNBROKEN = 13  # the longest heading, or cell of words, that stands in one line
LINE = 40  # letters of a line of a longer cell


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
        """Return a number as text, with the digits of this quantity. What rounds to zero has no minus."""
        return format(number, f"{'+' if sign else ''}z.{self.digits}f")

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
    """A text, and how it is marked: the best or the second best value of its column. `†` is part of the text."""

    text: str
    best: bool = False
    second: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A table. Its first `texts` columns are words, the others numbers.

    `verdict` is a one-line result, `sentences` say what the rows show, and `note` explains how to read the table.
    """

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    note: str = ""
    texts: int = 1
    verdict: str = ""
    sentences: Sequence[str] = ()


def fold_words(text: str) -> list[str]:
    """Return the lines of a cell of words: one, or of a long text two or more of similar length."""
    text = single_line(text)
    most = 1 if len(text) <= UNBROKEN else max(2, -(-len(text) // LINE))
    broken = (wrap(text, width, break_long_words=False, break_on_hyphens=False) for width in count(UNBROKEN // 2))
    return [text] if most == 1 else next(lines for lines in broken if len(lines) <= most)


def measure_columns(table: ReportTable) -> list[int]:
    """Return the widths of the columns in letters, if headings and words are folded."""
    widths = [max(map(len, fold_words(heading))) for heading in table.headings]
    for row in table.rows:
        for index, cell in enumerate(row):
            lines = fold_words(cell.text) if index < table.texts else [single_line(cell.text)]
            widths[index] = max(widths[index], *map(len, lines))
    return widths


def split_columns(table: ReportTable, room: int, apart: int = 0) -> Iterator[ReportTable]:
    """Yield parts of a table, each with the columns of words and as many columns of numbers as fit, at least one.

    Args:
        table: the table.
        room: the letters of a line.
        apart: the letters between two columns.
    """
    widths = [width + apart for width in measure_columns(table)]
    words, parts = [*range(table.texts)], [[*range(table.texts)]]
    for index in range(table.texts, len(widths)):
        if parts[-1] != words and sum(widths[other] for other in (*parts[-1], index)) > room:
            parts.append([*words])
        parts[-1].append(index)
    for part in parts:
        rows = [[row[index] for index in part] for row in table.rows]
        yield replace(table, headings=[table.headings[index] for index in part], rows=rows)


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
    groups = setting.evaluated(protocol).groups

    def known(quantity: Quantity) -> bool:
        return groups != [] and all(len(quantity.by_seed(group, protocol)) == len(group.runs) for group in groups)

    incremental = INCREMENTAL if known(INCREMENTAL) else INCREMENTAL_BY_TASK
    return [express(quantity, setting.metric) for quantity in (incremental, OVER_SAMPLES) if known(quantity)]


def tabulate_settings(settings: Sequence[ExperimentSetting]) -> ReportTable | None:
    """Return the keys in which the settings differ, a column for each setting, or None for one setting."""
    keys = dict.fromkeys(key for setting in settings for key in setting.differing)
    if len(settings) < 2 or not keys:
        return None
    values = [{key: show_bare(value) for key, value in setting.differing.items()} for setting in settings]
    rows = [[TableCell(key), *(TableCell(of_setting.get(key, NOTHING)) for of_setting in values)] for key in keys]
    headings = ("key", *(f"{setting.number}: {setting.title}" for setting in settings))
    return ReportTable("What differs between the settings", headings, rows)


def tabulate_results(setting: ExperimentSetting, protocol: str) -> ReportTable:
    """Return mean and sample standard deviation over seeds of every quantity, by group.

    There are columns about clients if a run of the setting has evaluation.per_client. Costs are not marked.
    """
    groups = setting.evaluated(protocol).groups
    fairness = FAIRNESS if any(protocol in (run.summary.per_client or {}) for run in setting.runs) else ()
    learning = (*learning_of(setting.metric), *over_time_of(setting, protocol), *fairness)
    columns = [
        [TableCell(group.label) for group in groups],
        [TableCell(group.count) for group in groups],
        *(tabulate_column(groups, quantity, protocol) for quantity in learning),
        *([TableCell(_show_group(group, cost, protocol)) for group in groups] for cost in COSTS),
    ]
    headings = ("methods", "seeds", *(quantity.title for quantity in (*learning, *COSTS)))
    cells = [cell for column in columns for cell in column]
    notes = [*_explain_seeds(groups), *explain_marks(cells)]
    caption = f"{setting.label(protocol)}: mean ± standard deviation over seeds"
    return ReportTable(caption, headings, [*zip(*columns, strict=True)], " ".join(notes))


def _explain_seeds(groups: Sequence[MethodGroup]) -> list[str]:
    """Return sentences about seeds that not all groups have, and about different data or weights."""
    notes = []
    if len({tuple(run.summary.seed for run in group.runs) for group in groups}) > 1:
        notes.append("Not all groups have the same seeds; differences are over common ones.")
    digests: dict[int, set[str]] = {}
    weights = set[str]()  # which no seed changes
    for run in (run for group in groups for run in group.runs):
        versions = run.summary.versions  # older versions did not write all
        if (data := versions.get("data")) is not None:
            digests.setdefault(run.summary.seed, set()).add(data)
        if (file := versions.get("weights")) is not None:
            weights.add(file)
    if unlike := [str(seed) for seed, found in sorted(digests.items()) if len(found) > 1]:
        notes.append(f"The data of the groups differ with seed {', '.join(unlike)}, so they may not be comparable.")
    if len(weights) > 1:
        notes.append("The runs began with files of weights that differ, so they may not be comparable.")
    return notes


def explain_marks(cells: Sequence[TableCell]) -> list[str]:
    """Return the sentences that explain the marks of some cells."""
    notes = []
    if any(cell.best for cell in cells):
        notes.append("Bold: the best mean. Underlined: the second best.")
    if any(cell.text.endswith(WORSE) for cell in cells):
        notes.append(f"{WORSE}: significantly worse than the best ({TEST} over the column, 5%).")
    return notes


def mark_groups(groups: Sequence[MethodGroup], quantity: Quantity, protocol: str) -> list[Mark]:
    """Return the marks of a quantity's column. Groups without a rank, such as bounds, are not compared."""
    column = [quantity.by_seed(group, protocol) if group.ranked else {} for group in groups]
    return mark_column(column, quantity.higher_is_better, quantity.digits)


def tabulate_column(groups: Sequence[MethodGroup], quantity: Quantity, protocol: str) -> list[TableCell]:
    """Return the mean and the deviation of each group, marked."""
    return [
        TableCell(_show_group(group, quantity, protocol) + f" {WORSE}" * mark.worse, mark.best, mark.second)
        for group, mark in zip(groups, mark_groups(groups, quantity, protocol), strict=True)
    ]


def _show_group(group: MethodGroup, quantity: Quantity, protocol: str) -> str:
    return quantity.show_mean(quantity.average_group(group, protocol))
