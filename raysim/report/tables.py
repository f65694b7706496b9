"""The tables, free of any format: which quantities they have, and their means over seeds and paired differences."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from raysim.report.grouping import ExperimentSetting, MethodGroup, derive_label
from raysim.report.reading import Methods

NOTHING = "-"


@dataclass(frozen=True)
class MeanOverSeeds:
    """The mean of some values and their sample standard deviation, None for one value."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class PairedDifference(MeanOverSeeds):
    """The mean of paired differences, their deviation, and p of the two-sided paired t-test.

    p is None where there is nothing to test: one pair, or differences that are all the same.
    """

    p: float | None


@dataclass(frozen=True)
class Quantity:
    """A number of a run: a column of the tables, its unit, and which end of it is the better one.

    `scale` takes it from summary.json's unit (fractions, bytes, seconds) to the shown one. `block` is the part of the
    summary that has its key, by protocol; None is the summary itself.
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
        return f"{self.heading}, {self.unit}"

    def by_seed(self, group: MethodGroup, protocol: str) -> dict[int, float]:
        """Return a group's values in the shown unit, of every seed that has one."""
        summaries = [run.summary for run in group.runs]
        blocks = [(getattr(one, self.block) or {}).get(protocol, {}) if self.block else vars(one) for one in summaries]
        found = {one.seed: block.get(self.key) for one, block in zip(summaries, blocks, strict=True)}
        return {seed: self.scale * float(value) for seed, value in found.items() if value is not None}

    def average_group(self, group: MethodGroup, protocol: str) -> MeanOverSeeds | None:
        """Return a group's mean over seeds in the shown unit, None where no seed has a value."""
        return average([*self.by_seed(group, protocol).values()])

    def show(self, number: float, sign: bool = False) -> str:
        """Return a number of this unit with its digits."""
        return format(number, f"{'+' if sign else ''}.{self.digits}f")

    def show_mean(self, found: MeanOverSeeds | None, sign: bool = False) -> str:
        """Return `mean ± std`, the mean alone where there is no deviation, or a dash."""
        if found is None:
            return NOTHING
        return self.show(found.mean, sign) + ("" if found.std is None else f" ± {self.show(found.std)}")


ACCURACY = Quantity("average_accuracy", "average accuracy", "%", 100, 2, True)
FORGETTING = Quantity("forgetting", "forgetting", "%", 100, 2, False)
FINAL_FORGETTING = Quantity("final_forgetting", "forgetting since the task's end", "%", 100, 2, False)
BACKWARD_TRANSFER = Quantity("backward_transfer", "backward transfer", "%", 100, 2, True)
LEARNING = (ACCURACY, FORGETTING, BACKWARD_TRANSFER)
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
    """A text, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class ReportTable:
    """A caption, headings, and rows of as many cells; the first `texts` columns are words, the others numbers."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    note: str = ""
    texts: int = 1


def average(values: Sequence[float]) -> MeanOverSeeds | None:
    """Return the mean and the sample standard deviation (n - 1) of the values, None where there are none."""
    return MeanOverSeeds(fmean(values), stdev(values) if len(values) > 1 else None) if values else None


def compare_pairs(before: Mapping[int, float], after: Mapping[int, float]) -> PairedDifference | None:
    """Return after - before over the seeds that both have, None where they share none."""
    seeds = sorted(before.keys() & after.keys())
    differences = [after[seed] - before[seed] for seed in seeds]
    found = average(differences)
    if found is None:
        return None
    p = None
    # one pair, or equal up to rounding: there is no deviation to test against
    if max(differences) - min(differences) > 1e-12 * max(1.0, *map(abs, differences)):
        p = 1.0 - within_t(found.mean / (stdev(differences) / math.sqrt(len(seeds))), len(seeds) - 1)
    return PairedDifference(found.mean, found.std, p)


def within_t(t: float, freedom: int) -> float:
    """Return the probability that Student's t with so many degrees of freedom is between -t and t.

    The finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4: scipy, which has it too, takes 143 MB.
    """
    angle = math.atan(abs(t) / math.sqrt(freedom))
    odd = freedom % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def tabulate_results(setting: ExperimentSetting, protocol: str) -> ReportTable:
    """Return mean and sample standard deviation over seeds of every quantity, by group.

    The columns about clients are there where a run of the setting has evaluation.per_client.
    """
    fairness = FAIRNESS if any(protocol in (run.summary.per_client or {}) for run in setting.runs) else ()
    quantities = (*LEARNING, *fairness, *COSTS)
    columns = [
        [TableCell(group.label) for group in setting.groups],
        [TableCell(str(len(group.runs))) for group in setting.groups],
        *(_column(setting.groups, quantity, protocol) for quantity in quantities),
    ]
    headings = ("methods", "seeds", *(quantity.title for quantity in quantities))
    alike = len({tuple(run.summary.seed for run in group.runs) for group in setting.groups}) == 1
    note = "" if alike else "Not all groups have the same seeds; what add-ons change is taken over common ones."
    caption = f"{setting.label(protocol)}: mean ± standard deviation over seeds"
    return ReportTable(caption, headings, [*zip(*columns, strict=True)], note)


def tabulate_gains(setting: ExperimentSetting, protocol: str) -> ReportTable | None:
    """Return what one more method changes, for all pairs of groups that differ by one; None where there are none."""
    among = [group.methods for group in setting.groups]
    rows = [
        (TableCell(derive_label(added, among)), TableCell(base.label), *_differences(base, extended, protocol))
        for base in setting.groups
        for extended in setting.groups
        if (added := _added(base.methods, extended.methods)) is not None
    ]
    if not rows:
        return None
    headings = ("added", "to", "common seeds", *(quantity.title for quantity in LEARNING))
    caption = f"{setting.label(protocol)}: what each add-on changes"
    note = "Paired differences over the common seeds, mean ± standard deviation; p of the two-sided paired t-test, "
    return ReportTable(caption, headings, rows, note + "not corrected for the number of comparisons.", texts=2)


def _column(groups: Sequence[MethodGroup], quantity: Quantity, protocol: str) -> list[TableCell]:
    found = [quantity.average_group(group, protocol) for group in groups]
    shown = [None if one is None else float(quantity.show(one.mean)) for one in found]
    means = {mean for mean in shown if mean is not None}
    # where all are equal as shown, none is the best
    best = (max if quantity.higher_is_better else min)(means) if len(means) > 1 else None
    return [
        TableCell(quantity.show_mean(one), mean is not None and mean == best)
        for one, mean in zip(found, shown, strict=True)
    ]


def _differences(base: MethodGroup, extended: MethodGroup, protocol: str) -> Iterator[TableCell]:
    common = {run.summary.seed for run in base.runs} & {run.summary.seed for run in extended.runs}
    yield TableCell(str(len(common)))
    for quantity in LEARNING:
        found = compare_pairs(quantity.by_seed(base, protocol), quantity.by_seed(extended, protocol))
        text = quantity.show_mean(found, sign=True)
        if found is not None and found.p is not None:
            text += f", p {'< 0.001' if found.p < 0.001 else format(found.p, '.3f')}"
        yield TableCell(text)


def _added(base: Methods, extended: Methods) -> Methods | None:
    """Return the one method, with its knobs, that `extended` has on top of `base`, with all else alike and in order."""
    added = [name for name in extended if name not in base]
    if len(added) != 1:
        return None
    rest = [(name, knobs) for name, knobs in extended.items() if name != added[0]]
    return {added[0]: extended[added[0]]} if rest == list(base.items()) else None
