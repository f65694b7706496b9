"""The tables, free of any format: what the groups of a setting came to, and what each add-on changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from raysim.evaluation.metrics import PROTOCOL_NAMES
from raysim.report.grouping import Group, Setting
from raysim.report.quantities import COSTS, FAIRNESS, LEARNING, Quantity
from raysim.report.statistics import Difference, Summary, paired, summary

NOTHING = "-"


@dataclass(frozen=True)
class Cell:
    """A text, and whether it is the best of its column."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A caption, headings, and rows of as many cells; the first `texts` columns are words, the others numbers."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    texts: int = 1


def results(setting: Setting, protocol: str) -> Table:
    """Return mean and sample standard deviation over seeds of every quantity, by group.

    The columns about clients are there where a run of the setting has evaluation.per_client.
    """
    fairness = FAIRNESS if any(protocol in run.summary.per_client for run in setting.runs) else ()
    quantities = (*LEARNING, *fairness, *COSTS)
    columns = [_column(setting.groups, quantity, protocol) for quantity in quantities]
    rows = [
        (Cell(group.label), Cell(str(len(group.runs))), *(column[index] for column in columns))
        for index, group in enumerate(setting.groups)
    ]
    headings = ("methods", "seeds", *(quantity.title for quantity in quantities))
    alike = len({tuple(run.summary.seed for run in group.runs) for group in setting.groups}) == 1
    note = "" if alike else "Not all groups have the same seeds; what add-ons change is taken over common ones."
    return Table(
        f"{PROTOCOL_NAMES.get(protocol, protocol)}: mean ± standard deviation over seeds", headings, rows, note
    )


def gains(setting: Setting, protocol: str) -> Table | None:
    """Return what one more method changes, for all pairs of groups that differ by one; None where there are none."""
    rows = [
        (Cell(added), Cell(base.label), *_differences(base, extended, protocol))
        for base, extended, added in _pairs(setting.groups)
    ]
    if not rows:
        return None
    headings = ("added", "to", "common seeds", *(quantity.title for quantity in LEARNING))
    caption = f"{PROTOCOL_NAMES.get(protocol, protocol)}: what each add-on changes"
    note = "Paired differences over the common seeds, mean ± standard deviation; p of the two-sided paired t-test, "
    return Table(caption, headings, rows, note + "not corrected for the number of comparisons.", texts=2)


def mean_and_std(found: Summary | None, quantity: Quantity, sign: bool = False) -> str:
    """Return `mean ± std`, the mean alone where there is no deviation, or a dash."""
    if found is None:
        return NOTHING
    std = "" if found.std is None else f" ± {quantity.show(found.std)}"
    return quantity.show(found.mean, sign) + std


def _column(groups: Sequence[Group], quantity: Quantity, protocol: str) -> list[Cell]:
    found = [summary([*group.by_seed(quantity.of(protocol)).values()]) for group in groups]
    shown = [None if one is None else float(quantity.show(one.mean)) for one in found]
    means = [mean for mean in shown if mean is not None]
    best = (max if quantity.higher_is_better else min)(means, default=None)
    telling = len(set(means)) > 1  # where all are equal as shown, none is the best
    return [
        Cell(mean_and_std(one, quantity), telling and mean is not None and mean == best)
        for one, mean in zip(found, shown, strict=True)
    ]


def _differences(base: Group, extended: Group, protocol: str) -> list[Cell]:
    found = [paired(base.by_seed(q.of(protocol)), extended.by_seed(q.of(protocol))) for q in LEARNING]
    common = len({run.summary.seed for run in base.runs} & {run.summary.seed for run in extended.runs})
    cells = [Cell(_with_p(one, quantity)) for one, quantity in zip(found, LEARNING, strict=True)]
    return [Cell(str(common)), *cells]


def _with_p(found: Difference | None, quantity: Quantity) -> str:
    text = mean_and_std(found, quantity, sign=True)
    if found is None or found.p is None:
        return text
    return f"{text}, p {'< 0.001' if found.p < 0.001 else format(found.p, '.3f')}"


def _pairs(groups: Sequence[Group]) -> Iterator[tuple[Group, Group, str]]:
    for base in groups:
        for extended in groups:
            added = _added(base.methods, extended.methods)
            if added is not None:
                yield base, extended, added


def _added(base: Mapping[str, object], extended: Mapping[str, object]) -> str | None:
    """Return the one method that `extended` has on top of `base`, with all else alike and in the same order."""
    added = [name for name in extended if name not in base]
    if len(added) != 1:
        return None
    rest = [(name, knobs) for name, knobs in extended.items() if name != added[0]]
    return added[0] if rest == list(base.items()) else None
