"""What was measured of a paper's rows, next to what the paper has: in packed results, or below a directory of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raysim.reports.against import Level, match_rows
from raysim.reports.claims import QUANTITIES, Gain, find_gains, name_metric
from raysim.reports.gains import show_change
from raysim.reports.grouping import ExperimentSetting, MethodGroup, group_runs
from raysim.reports.packed import SUFFIX
from raysim.reports.published import PublishedColumn, PublishedPaper
from raysim.reports.quantity_tables import NOTHING
from raysim.reports.reading import FinishedRun, find_runs
from raysim.reports.statistics import MeanOverSeeds, interval_of_mean
from raysim.reproducing.rows import SWEEPS, Labels, PaperRow
from raysim.sweeps.cells import SPLIT_KEY
from raysim.system.errors import ConfigError
from raysim.system.progress import tell_progress

RESULTS = Path(__file__).parents[1] / "results"  # in a checkout a link to the folder of that name at the root
VERDICTS = {True: "agrees", False: "differs", None: "not judged"}


@dataclass(frozen=True, eq=False)
class MeasuredRow:
    """The runs of a row: their group, and the setting with the groups that it is compared with."""

    setting: ExperimentSetting
    group: MethodGroup


def read_packed_rows(rows: Sequence[PaperRow]) -> tuple[dict[PaperRow, MeasuredRow], list[str]]:
    """Return the measured rows, and the sweeps without packed results here."""
    found: dict[PaperRow, MeasuredRow] = {}
    missing: list[str] = []
    for sweep in dict.fromkeys(sweep for row in rows for sweep in row.measured_in):
        file = RESULTS / f"{sweep.removeprefix(SWEEPS)}{SUFFIX}"
        if not file.is_file():
            missing.append(sweep)
            continue
        tell_progress(f"reading the results of {sweep}")
        unfinished: list[FinishedRun] = []
        settings = group_runs(find_runs([file], [], unfinished=unfinished), [], unfinished)
        for row in rows:
            labels = None if row in found else row.measured_in.get(sweep)
            if labels is not None and (one := _find_group(settings, labels)) is not None:
                found[row] = one
    return found, missing


def _find_group(settings: Sequence[ExperimentSetting], labels: Labels) -> MeasuredRow | None:
    for setting in settings:
        for group in setting.groups:
            names = {axis: name for axis, name in group.runs[0].names.items() if axis not in ("seed", SPLIT_KEY)}
            if names == labels:
                return MeasuredRow(setting, group)
    return None


def read_rows_below(directories: Mapping[PaperRow, Path], rows: Sequence[PaperRow]) -> dict[PaperRow, MeasuredRow]:
    """Return those of the rows with finished runs in their directories. Rows of one setting are compared.

    Two rows may have the same config. The runs in a row's own directory then count for it.
    """
    unfinished: list[FinishedRun] = []
    runs = {row: _find_runs_below(directory, unfinished) for row, directory in directories.items()}
    found: dict[PaperRow, MeasuredRow] = {}
    for row in rows:
        others = [run for other, theirs in runs.items() if other is not row for run in theirs]
        own = {run.directory for run in runs[row]}
        settings = group_runs([*others, *runs[row]], [], unfinished) if own else []  # of the same run the last counts
        for setting in settings:
            for group in setting.groups:
                if any(run.directory in own for run in group.runs):
                    found[row] = MeasuredRow(setting, group)
    return found


def _find_runs_below(directory: Path, unfinished: list[FinishedRun]) -> list[FinishedRun]:
    """Return the finished runs of a row, without the trials of tuned values, which are not of the test samples."""
    try:
        runs = find_runs([directory], [], unfinished=unfinished) if directory.is_dir() else []
    except ConfigError:  # none has finished
        return []
    return [run for run in runs if SPLIT_KEY not in run.names]


def columns_of(paper: PublishedPaper, row: PaperRow) -> list[PublishedColumn]:
    """Return the columns of the paper with a cell for a row."""
    return [column for column in paper.tables if column.setting == row.setting and row.method in column.cells]


def find_levels(paper: PublishedPaper, row: PaperRow, measured: MeasuredRow) -> list[Level]:
    """Return the published cells of a row with the measured values."""
    columns = match_rows(paper, row.setting, measured.setting)
    return [
        Level(column, method, group)
        for of_column in columns
        for column, method, group in of_column
        if method == row.method and group is measured.group
    ]


def find_row_gains(paper: PublishedPaper, row: PaperRow, measured: MeasuredRow) -> list[Gain]:
    """Return the gains that the paper claims for a row, over the rows that were measured in the same setting."""
    columns = match_rows(paper, row.setting, measured.setting)
    gains = (gain for found in find_gains(paper, measured.setting, columns) for gain in found)
    own = columns_of(paper, row)
    return [gain for gain in gains if gain.group is measured.group and any(gain.column is one for one in own)]


def describe_cell(column: PublishedColumn, row: PaperRow, level: Level | None) -> tuple[str, ...]:
    """Return a row in a column: the table, the metric, the paper's value, the measured one and the verdict."""
    quantity = QUANTITIES[column.metric][0]
    published = quantity.show_mean(MeanOverSeeds(*column.cells[row.method]))
    if level is None or level.measured is None:
        return f"Table {column.table}", name_metric(column), published, NOTHING, NOTHING
    return f"Table {column.table}", name_metric(column), published, _show_interval(level), VERDICTS[level.agrees]


def _show_interval(level: Level) -> str:
    """Return a measured mean with its 95% interval over seeds: `66.10 (60.12 to 72.08), 3 seeds (1 failed)`."""
    values = [*level.quantity.by_seed(level.group, level.column.protocol).values()]
    interval = interval_of_mean(values)
    assert level.measured is not None
    show = level.quantity.show
    between = "" if interval is None else f" ({show(interval[0])} to {show(interval[1])})"
    return f"{show(level.measured.mean)}{between}, {len(values)} seed{'s' * (len(values) > 1)}{level.group.ends}"


def describe_gain(gain: Gain) -> str:
    """Return a sentence on a claimed gain: published, measured and the verdict."""
    published, measured = gain.quantity.show(gain.published, sign=True), show_change(gain.quantity, gain.measured)
    where = f"Table {gain.column.table}, {name_metric(gain.column)}"
    return (
        f"gain of {gain.group.label} over {gain.over.label} ({where}): paper {published}, here {measured}: {gain.told}"
    )
