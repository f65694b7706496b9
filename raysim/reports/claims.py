"""The gains that a paper claims, the measured ones, and a paired test of each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysim.evaluation.accuracy_matrix import protocol_label
from raysim.reports.content import ComparedPair
from raysim.reports.gains import Pair, count_common_seeds, gains_by_labels, measure_family, say_gain, show_change
from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.published import PublishedColumn, PublishedPaper
from raysim.reports.quantity_tables import (
    ACCURACY,
    FINAL_FORGETTING,
    LEARNING,
    OVER_TIME,
    TEST,
    Quantity,
    ReportTable,
    TableCell,
)
from raysim.reports.statistics import MeanOverSeeds, PairedDifference

QUANTITIES = {quantity.key: (quantity, 1) for quantity in (*LEARNING, FINAL_FORGETTING, *OVER_TIME)} | {
    "top10_accuracy": (ACCURACY, 10)
}
"""By a column's metric: the quantity, and the evaluation.top_k of its runs."""

CHANGE = (-100.0, 100.0)  # of an accuracy in %

SUPPORTED, REVERSED, INCONCLUSIVE, NOT_SUPPORTED = "supported", "reversed", "inconclusive", "not supported"
VERDICTS = (SUPPORTED, INCONCLUSIVE, NOT_SUPPORTED, REVERSED)
MEANING = (
    f"Measured: the mean of the paired differences, its interval and p ({TEST}). A gain that is also in a table below "
    "has the test of that table. The other claimed gains in a metric are one family. Supported: the gain is "
    "significant (5%) with the published sign. Reversed: it is significant with the other sign. Inconclusive: it has "
    "the published sign and is not significant. Not supported: it does not have the published sign and is not "
    "significant."
)

ComparedRow = tuple[PublishedColumn, str, MethodGroup]
"""A column, the name of one of its cells, and a group of the same methods."""


@dataclass(frozen=True, eq=False)
class Gain:
    """A gain in a column of a paper, and the measured one over common seeds, corrected in its family."""

    column: PublishedColumn
    group: MethodGroup
    over: MethodGroup
    published: float
    measured: PairedDifference

    @property
    def quantity(self) -> Quantity:
        """The quantity of the column."""
        return QUANTITIES[self.column.metric][0]

    @property
    def verdict(self) -> str:
        """The verdict on the published gain, one of VERDICTS."""
        agreement = self.measured.mean * self.published
        if self.measured.significant and agreement != 0:
            return SUPPORTED if agreement > 0 else REVERSED
        return INCONCLUSIVE if agreement > 0 else NOT_SUPPORTED

    @property
    def told(self) -> str:
        """The verdict, with the number of seeds if they were too few for another."""
        seeds = f" ({self.measured.pairs} seed{'s' * (self.measured.pairs > 1)})"
        return self.verdict + seeds * (self.verdict == INCONCLUSIVE)

    @property
    def shown(self) -> ComparedPair:
        """The gain for the plot, with half of its interval."""
        measured = MeanOverSeeds(self.measured.mean, self.measured.half)
        published = MeanOverSeeds(self.published, None)
        return ComparedPair("gain", name_metric(self.column), self.group.label, published, measured, CHANGE)


def find_gains(
    paper: PublishedPaper,
    setting: ExperimentSetting,
    columns: Sequence[Sequence[ComparedRow]],
    asked: Sequence[tuple[str, str]] = (),
) -> list[list[Gain]]:
    """Return for each column the gains that the paper claims, if both methods were measured; `asked`: see families."""
    claimed = [[*_claimed_pairs(paper, rows)] for rows in columns]
    pairs: dict[tuple[str, str], list[Pair]] = {}
    for ((column, *_), *_), found in zip(columns, claimed, strict=True):
        pairs.setdefault((column.protocol, column.metric), []).extend((group, over) for _, group, _, over in found)
    tested = {metric: _test_pairs(setting, of_metric, *metric, asked) for metric, of_metric in pairs.items()}
    return [
        [
            Gain(column, group, over, column.cells[method][0] - column.cells[other][0], difference)
            for method, group, other, over in found
            if (difference := tested[column.protocol, column.metric].get((group.label, over.label)))
        ]
        for ((column, *_), *_), found in zip(columns, claimed, strict=True)
    ]


def _claimed_pairs(
    paper: PublishedPaper, rows: Sequence[ComparedRow]
) -> list[tuple[str, MethodGroup, str, MethodGroup]]:
    return [
        (method, group, other, over)
        for _, method, group in rows
        for _, other, over in rows
        if other in paper.claims.get(method, ()) and _alike(paper, (method, group), (other, over))
    ]


def _test_pairs(
    setting: ExperimentSetting,
    pairs: Sequence[Pair],
    protocol: str,
    metric: str,
    asked: Sequence[tuple[str, str]],
) -> Mapping[tuple[str, str], PairedDifference]:
    """Return the differences by labels: those of the report's tables of gains, and the others as one family."""
    quantity = QUANTITIES[metric][0]
    known = gains_by_labels(setting, quantity, protocol, asked)
    others = {(one.label, over.label): (one, over) for one, over in pairs if (one.label, over.label) not in known}
    measured = measure_family(others.values(), quantity, protocol)
    return {**known, **{labels: one for labels, one in zip(others, measured, strict=True) if one is not None}}


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
            show_change(gain.quantity, gain.measured),
            str(count_common_seeds(gain.over, gain.group)),
            gain.told,
        )
        for gain in gains
    ]
    counts = Counter(gain.verdict for gain in gains)
    told = ", ".join(f"{counts[word]} {word}" for word in VERDICTS)
    verdict = f"Of {len(gains)} published gain{'s' * (len(gains) > 1)}: {told}."
    column = gains[0].column
    caption = f"{title}, Table {column.table}: gains in {name_metric(column)}"
    said = [
        say_gain(f"{gain.group.label}, compared with {gain.over.label},", gain.measured, gain.quantity)
        for gain in gains
    ]
    return ReportTable(caption, headings, to_cells(rows), note, texts=2, verdict=verdict, sentences=said)


def to_cells(rows: Sequence[Sequence[str]]) -> list[list[TableCell]]:
    """Return rows of texts as cells."""
    return [[*map(TableCell, row)] for row in rows]


def name_metric(column: PublishedColumn) -> str:
    """Return the name of a column's metric, such as `class-IL average accuracy`."""
    quantity, top_k = QUANTITIES[column.metric]
    return f"{protocol_label(column.protocol, top_k)} {quantity.heading}"
