"""The gains that a paper claims, the measured ones, and a paired test of each."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from raysim.evaluation.metrics import protocol_label
from raysim.reports.content import ComparedPair
from raysim.reports.grouping import MethodGroup
from raysim.reports.published import PublishedColumn, PublishedPaper
from raysim.reports.statistics import LEVEL, MeanOverSeeds, PairedDifference, compare_pairs, correct_by_holm
from raysim.reports.tables import (
    ACCURACY,
    FINAL_FORGETTING,
    LEARNING,
    OVER_TIME,
    TEST,
    Quantity,
    ReportTable,
    TableCell,
    count_common_seeds,
    show_change,
)

QUANTITIES = {quantity.key: (quantity, 1) for quantity in (*LEARNING, FINAL_FORGETTING, *OVER_TIME)} | {
    "top10_accuracy": (ACCURACY, 10)
}
"""By a column's metric: the quantity, and the evaluation.top_k of its runs."""

CHANGE = (-100.0, 100.0)  # of an accuracy in %

VERDICTS = ("supported", "not supported", "reversed")
MEANING = (
    f"Supported: the measured gain has the sign of the published one and differs significantly from 0 ({TEST} over the "
    "gains in a metric, 5%). Reversed: it is significant with the other sign. Not supported: it is not significant, or "
    "there is only one common seed. Measured are the mean of the paired differences, its 95% interval and p."
)

ComparedRow = tuple[PublishedColumn, str, MethodGroup]
"""A column, the name of one of its cells, and a group of the same methods."""


@dataclass(frozen=True, eq=False)
class Gain:
    """A gain in a column of a paper, the measured one over common seeds, and its corrected p."""

    column: PublishedColumn
    group: MethodGroup
    over: MethodGroup
    published: float
    measured: PairedDifference
    p: float | None

    @property
    def quantity(self) -> Quantity:
        """The quantity of the column."""
        return QUANTITIES[self.column.metric][0]

    @property
    def verdict(self) -> str:
        """The verdict on the published gain, one of VERDICTS."""
        told = self.measured.exact or (self.p is not None and self.p < LEVEL)
        agreement = self.measured.mean * self.published
        return VERDICTS[1] if not told or agreement == 0 else VERDICTS[0] if agreement > 0 else VERDICTS[2]

    @property
    def shown(self) -> ComparedPair:
        """The gain for the plot, with half of its interval."""
        measured = MeanOverSeeds(self.measured.mean, self.measured.half)
        published = MeanOverSeeds(self.published, None)
        return ComparedPair("gain", name_metric(self.column), self.group.label, published, measured, CHANGE)


def find_gains(paper: PublishedPaper, rows: Sequence[ComparedRow]) -> list[Gain]:
    """Return the gains in a column that the paper claims, if both methods were measured."""
    column = rows[0][0]
    quantity = QUANTITIES[column.metric][0]
    pairs = [
        (method, group, other, over)
        for _, method, group in rows
        for _, other, over in rows
        if other in paper.claims.get(method, ()) and _alike(paper, (method, group), (other, over))
    ]
    measured = [
        compare_pairs(quantity.by_seed(over, column.protocol), quantity.by_seed(group, column.protocol))
        for _, group, _, over in pairs
    ]
    corrected = correct_by_holm([None if one is None else one.p for one in measured])
    return [
        Gain(column, group, over, column.cells[method][0] - column.cells[other][0], difference, p)
        for (method, group, other, over), difference, p in zip(pairs, measured, corrected, strict=True)
        if difference is not None
    ]


def _alike(paper: PublishedPaper, one: tuple[str, MethodGroup], other: tuple[str, MethodGroup]) -> bool:
    """Return whether two groups differ only in hyperparameters that the paper names, so the gain is the method's."""
    named = [paper.methods[method] or {} for method, _ in (one, other)]
    mine, theirs = one[1].methods, other[1].methods
    return all(
        mine[name].get(key) == theirs[name].get(key)
        for name in mine.keys() & theirs.keys()
        for key in mine[name].keys() | theirs[name].keys()
        if not any(key in block.get(name, {}) for block in named)
    )


def tabulate_claims(title: str, gains: Sequence[Gain], note: str) -> ReportTable:
    """Return the table of the gains in a column of a paper, with how many of them are supported."""
    headings = ("gain of", "over", "published, points", "measured, points", "seeds", "verdict")
    rows = [
        (
            gain.group.label,
            gain.over.label,
            gain.quantity.show(gain.published, sign=True),
            show_change(gain.quantity, gain.measured, gain.p),
            str(count_common_seeds(gain.over, gain.group)),
            gain.verdict,
        )
        for gain in gains
    ]
    counts = Counter(gain.verdict for gain in gains)
    told = ", ".join(f"{counts[word]} {word}" for word in VERDICTS)
    verdict = f"Of {len(gains)} published gain{'s' * (len(gains) > 1)}: {told}."
    column = gains[0].column
    caption = f"{title}, Table {column.table}: gains in {name_metric(column)}"
    return ReportTable(caption, headings, to_cells(rows), note, texts=2, verdict=verdict)


def to_cells(rows: Sequence[Sequence[str]]) -> list[list[TableCell]]:
    """Return rows of texts as cells."""
    return [[*map(TableCell, row)] for row in rows]


def name_metric(column: PublishedColumn) -> str:
    """Return the name of a column's metric, such as `class-IL average accuracy`."""
    quantity, top_k = QUANTITIES[column.metric]
    return f"{protocol_label(column.protocol, top_k)} {quantity.heading}"
