"""The lists of papers and of a paper's rows, as text."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from raysim.launch.amounts import in_hours
from raysim.reports.claims import QUANTITIES
from raysim.reports.published import PublishedColumn, PublishedPaper, list_papers, load_paper
from raysim.reports.quantity_tables import ACCURACY, NOTHING
from raysim.reproducing.measured import (
    MeasuredRow,
    columns_of,
    describe_cell,
    describe_gain,
    find_levels,
    find_row_gains,
)
from raysim.reproducing.needs import RowTime
from raysim.reproducing.rows import PaperRow

MEANING = (
    "Here: the mean with its 95% interval over seeds (Student's t). Agrees: the means differ by at most the sum of "
    "both standard deviations. Supported: the gain is significant."
)

Measured = Mapping[PaperRow, MeasuredRow]
Times = Mapping[PaperRow, RowTime]


def describe_papers() -> Iterator[str]:
    """Yield a line for each paper, and how to list its rows."""
    names = list_papers()
    width = max(map(len, names))
    for name in names:
        yield f"{name:<{width}}  {load_paper(name).citation}"
    yield "List a paper's rows: raysim reproduce PAPER"


def blocks_of(rows: Sequence[PaperRow]) -> list[list[PaperRow]]:
    """Return the rows in blocks of one setting and one config or sweep."""
    return [[*block] for _, block in groupby(rows, lambda row: (row.setting, row.source))]


def describe_block(paper: PublishedPaper, block: Sequence[PaperRow], data: str) -> Iterator[str]:
    """Yield the lines above a block of rows: its setting, its config, its data and where it departs from the paper."""
    first = block[0]
    size = "a sweep" if first.of_sweep else "the paper's size"
    seeds = f"{len(first.seeds)} seed{'s' * (len(first.seeds) > 1)}"
    yield f"{paper.paper}, {first.setting}: {first.source} ({size}, {seeds})"
    yield f"  data: {data}"
    if departures := [*dict.fromkeys(line for row in block for line in row.departures(paper))]:
        yield f"  departs: {'; '.join(departures)}"


def describe_rows(
    paper: PublishedPaper, block: Sequence[PaperRow], measured: Measured, times: Times, all_metrics: bool
) -> Iterator[str]:
    """Yield the lines of a block's rows: number, method, hours, and the published and measured values by column."""
    width = max(len(row.method) for row in block)
    for row in block:
        time = times.get(row)
        hours = NOTHING if time is None or time.seconds is None else in_hours(time.seconds)
        refused = [f"raysim refuses it: {row.problem}"] if row.problem else []
        begin = f"{row.number:>5}  {row.method:<{width}}  {hours:>8}"
        for line in (*refused, *describe_values(paper, row, measured.get(row), all_metrics)):
            yield f"{begin}  {line}"
            begin = " " * len(begin)


def describe_values(
    paper: PublishedPaper, row: PaperRow, measured: MeasuredRow | None, all_metrics: bool = True
) -> Iterator[str]:
    """Yield a line for each column with the row, and for each gain that the paper claims for it."""
    levels = {} if measured is None else {id(one.column): one for one in find_levels(paper, row, measured)}
    columns = [column for column in columns_of(paper, row) if all_metrics or _is_accuracy(column)]
    for column in columns:
        table, metric, published, found, verdict = describe_cell(column, row, levels.get(id(column)))
        here = f", here {found}: {verdict}" if found != NOTHING else ""
        yield f"{table}, {metric}: paper {published}{here}"
    for gain in [] if measured is None else find_row_gains(paper, row, measured):
        if all_metrics or _is_accuracy(gain.column):
            yield describe_gain(gain)


def _is_accuracy(column: PublishedColumn) -> bool:
    return QUANTITIES[column.metric][0] == ACCURACY


def describe_end(name: str, paper: PublishedPaper, missing: Sequence[str]) -> Iterator[str]:
    """Yield the notes below a list of rows."""
    yield MEANING
    if missing:
        what = f"The packed results of {', '.join(missing)} are not here"
        yield f"{what}; a clone of raysim's repository has them in results/."
    if paper.elsewhere:
        yield f"The claims on other data: {', '.join(paper.elsewhere)}; run one with raysim sweep NAME."
    yield f"Run a row: raysim reproduce {name} ROW. ROW is its number or SETTING/METHOD, with @SWEEP for a sweep's row."
