"""`raysim reproduce`: list papers and their rows, and run rows and compare them with the paper's values."""

import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raysim.command_line import ArgumentParser, fit_lines
from raysim.config import Config
from raysim.launch.amounts import in_hours
from raysim.reports.against import list_departures
from raysim.reports.published import PublishedPaper, load_paper
from raysim.reproducing.listing import (
    MEANING,
    blocks_of,
    describe_block,
    describe_end,
    describe_papers,
    describe_rows,
    describe_values,
)
from raysim.reproducing.measured import read_packed_rows, read_rows_below
from raysim.reproducing.needs import HOUR, DataNeeds, DataSearch, RowTime, estimate_time
from raysim.reproducing.rows import PaperRow, find_rows, list_rows, make_sweep, name_rows
from raysim.sweeps.cells import Cell
from raysim.sweeps.directory import SweepPlan, plan_sweep
from raysim.sweeps.grid import expand_sweep
from raysim.sweeps.shown import carry_out_shown
from raysim.system.errors import ConfigError, single_line
from raysim.system.progress import show_progress, tell_progress


@dataclass(frozen=True, eq=False)
class _Request:
    """What the command line asked for, with all rows of the paper, and those that it names."""

    name: str
    paper: PublishedPaper
    every: Sequence[PaperRow]
    rows: Sequence[PaperRow]
    overrides: Sequence[str]
    seeds: int | None
    jobs: int | None
    local: bool
    out: Path

    def directory(self, row: PaperRow) -> Path:
        """Return the directory of a row's sweep."""
        return self.out / row.folder

    def plan(self, row: PaperRow, data: DataNeeds) -> SweepPlan:
        """Return the sweep of a row, which reads the data that were found. Raises ConfigError."""
        source, changes = make_sweep(row, self.name, self.seeds)
        return plan_sweep(source, [dict(data.changes), changes, *self.overrides], self.directory(row))

    def expand(self, row: PaperRow, data: DataNeeds | None = None) -> list[Cell]:
        """Return the runs of a row's sweep, whatever is in its directory. Raises ConfigError."""
        source, changes = make_sweep(row, self.name, self.seeds)
        found = {} if data is None else dict(data.changes)
        return expand_sweep(source, [found, changes, *self.overrides])[1]

    def config(self, row: PaperRow) -> Config | None:
        """Return the config by which a row's data are looked for."""
        return self.expand(row)[0].config if self.overrides and row.config is not None else row.config


def reproduce(parser: ArgumentParser, asked: Namespace, log: str) -> int:
    """Carry out `raysim reproduce`, and return the exit status. `log` is the name of the file for what Ray prints."""
    if asked.paper is None:
        if asked.hours is not None:
            parser.error("argument --hours: it needs a PAPER, such as raysim reproduce fed_a_gem --hours 2")
        _print(describe_papers())
        return 0
    request = _read_request(parser, asked)
    if asked.list or (asked.row is None and asked.hours is None):
        _list(request, every=asked.row is not None, estimates=not asked.quick)
        return 0
    if asked.hours is None:
        if len(request.rows) > 1:
            words = f"found {len(request.rows)} rows, allowed: one of {name_rows(request.rows)}"
            raise ConfigError(f"{asked.row}: {words}; or --hours H for all that fit, or --list")
        plans = [_plan_row(request, request.rows[0])]
        return _carry_out(request, plans, None, asked.quiet, log)
    return _carry_out(request, _choose(request, asked.hours), asked.hours, asked.quiet, log)


def _read_request(parser: ArgumentParser, asked: Namespace) -> _Request:
    if asked.row is not None and "=" in asked.row and asked.row.split("=")[0].split(".")[0] in Config.model_fields:
        asked.row, asked.overrides = None, [asked.row, *asked.overrides]
    if asked.hours is not None and not asked.hours > 0:
        parser.error(f"argument --hours: found {asked.hours:g}, allowed: a number > 0")
    paper = load_paper(asked.paper, "raysim reproduce ")
    with show_progress(f"reading the rows of {asked.paper}", sys.stderr):
        rows = list_rows(paper)
    wanted = rows if asked.row is None else find_rows(rows, asked.row, asked.paper)
    most = max(len(row.seeds) for row in wanted)
    if asked.seeds is not None and asked.seeds > most:
        parser.error(f"argument --seeds: found {asked.seeds}, allowed: at most {most}, the seeds of these rows")
    out = Path("runs", "reproduce", asked.paper) if asked.out is None else Path(asked.out)
    return _Request(asked.paper, paper, rows, wanted, asked.overrides, asked.seeds, asked.jobs, asked.local, out)


def _list(request: _Request, every: bool, estimates: bool) -> None:
    """Print the rows block by block; with `every`, all metrics and not only accuracies."""
    search = DataSearch()
    with show_progress("reading the results", sys.stderr):
        measured, missing = read_packed_rows(request.rows)
    for block in blocks_of(request.rows):
        with show_progress(f"looking at {block[0].setting}", sys.stderr):
            data, times = _look_at(request, block, search, estimates)
        _print(describe_block(request.paper, block, str(data) if data else "not known, as raysim refuses its rows"))
        whys = dict.fromkeys(single_line(one.why) for one in times.values() if one.why)
        if estimates and data is not None and data.missing:
            whys = {"times are measured where the data are": None}
        _print(f"  hours not known: {why}" for why in whys)
        _print(describe_rows(request.paper, block, measured, times, every))
        print(flush=True)
    _print(describe_end(request.name, request.paper, missing))


def _look_at(
    request: _Request, block: Sequence[PaperRow], search: DataSearch, estimates: bool
) -> tuple[DataNeeds | None, Mapping[PaperRow, RowTime]]:
    """Return the data of a block, and the hours of its rows if their data are here."""
    known = [row for row in block if row.config is not None]
    config = request.config(known[0]) if known else None
    if config is None:
        return None, {}
    data = search.find(config)
    if data.missing or not estimates:
        return data, {}
    return data, {row: _estimate(request, row, request.expand(row, data)) for row in known}


def _estimate(request: _Request, row: PaperRow, runs: Sequence[Cell]) -> RowTime:
    if not runs:
        return RowTime(0.0)
    tell_progress(f"estimating {row.number} ({row.name})")
    return estimate_time(runs[0].config, len(runs), request.jobs, request.local)


def _plan_row(request: _Request, row: PaperRow) -> tuple[PaperRow, SweepPlan]:
    """Return a row with its sweep. Raises ConfigError if raysim refuses it, or if data are missing."""
    if row.problem:
        raise ConfigError(f"{row.number} ({row.name}): raysim refuses this row: {row.problem}")
    with show_progress("looking for the data", sys.stderr):
        config = request.config(row)
        assert config is not None
        data = DataSearch().find(config)
    if data.missing and not data.downloads:
        title, why = next(iter(data.missing.items()))
        words = f"the dataset {title} is missing ({why})"
        raise ConfigError(
            f"{row.number} ({row.name}): {words}; the head of the config {row.source} says where it is from"
        )
    return row, request.plan(row, data)


def _find_hours(request: _Request, row: PaperRow, search: DataSearch) -> tuple[float, SweepPlan]:
    """Return the hours that the runs of a row need which are not done, and its sweep. Raises ConfigError: unknown."""
    config = request.config(row)
    if config is None:
        raise ConfigError("raysim refuses them, see --list")
    data = search.find(config)
    if data.missing:
        raise ConfigError(f"data: {data}")
    plan = request.plan(row, data)
    time = _estimate(request, row, [cell for cell, progress in plan.runs if progress not in ("done", "diverged")])
    if time.hours is None:
        raise ConfigError(time.why)
    return time.hours, plan


def _choose(request: _Request, hours: float) -> list[tuple[PaperRow, SweepPlan]]:
    """Return the rows that fit the hours, the shortest first, and say which others there are.

    Raises:
        ConfigError: none fits.
    """
    search, times = DataSearch(), dict[PaperRow, tuple[float, SweepPlan]]()
    unknown: dict[str, int] = {}
    with show_progress("estimating", sys.stderr):
        for row in request.rows:
            try:
                times[row] = _find_hours(request, row, search)
            except ConfigError as error:
                unknown[str(error)] = unknown.get(str(error), 0) + 1
    _print(f"left out: {count} row{'s' * (count > 1)}: {why}" for why, count in unknown.items())
    chosen: list[tuple[PaperRow, SweepPlan]] = []
    left = hours
    for row, (needed, plan) in sorted(times.items(), key=lambda one: one[1][0]):
        if needed <= left:
            left -= needed
            chosen.append((row, plan))
            _print([f"chosen: {row.number} ({row.name}), about {in_hours(needed * HOUR)}"])
    if not chosen:
        if not times:
            raise ConfigError(f"--hours {hours:g}: the hours of no row are known, for the reasons above")
        shortest, (needed, _) = min(times.items(), key=lambda one: one[1][0])
        words = f"no row fits; the shortest, {shortest.number} ({shortest.name}), takes about {in_hours(needed * HOUR)}"
        raise ConfigError(f"--hours {hours:g}: {words}; --seeds 1 runs one seed alone")
    return chosen


def _carry_out(
    request: _Request, plans: Sequence[tuple[PaperRow, SweepPlan]], hours: float | None, quiet: bool, log: str
) -> int:
    """Run the rows one after the other, print them next to the paper's values, and return the exit status."""
    began, status = time.monotonic(), 0
    for place, (row, plan) in enumerate(plans):
        if hours is not None and place and time.monotonic() - began > hours * HOUR:
            _print([f"the {hours:g} h are over; not run: {name_rows([one for one, _ in plans[place:]])}"])
            break
        if not quiet:
            _print([f"{row.number} ({row.name})"])
        status = max(status, carry_out_shown(plan, request.local, request.jobs, quiet, log))
        if status == 130:
            break
    _print(_compare(request, [row for row, _ in plans]))
    return status


def _compare(request: _Request, rows: Sequence[PaperRow]) -> Iterator[str]:
    """Yield the rows next to the paper's values, and to those of the packed results."""
    directories = {row: request.directory(row) for row in request.every}  # gains are over other rows
    here = read_rows_below(directories, rows)
    with show_progress("reading the results", sys.stderr):
        packed, _ = read_packed_rows(rows)
    for row in rows:
        yield f"{request.paper.paper}, {row.name}"
        if row not in here:
            yield "  no run of it has finished"
            continue
        yield from (f"  {line}" for line in describe_values(request.paper, row, here[row]))
        if row in packed:
            yield from (
                f"  in raysim's packed results: {line}" for line in describe_values(request.paper, row, packed[row])
            )
        departures = list_departures(request.paper, row.setting, here[row].setting, [here[row].group])
        yield from (f"  departs: {line}" for line in departures)
    if any(row in here for row in rows):
        yield MEANING


def _print(lines: Iterable[str]) -> None:
    for line in fit_lines(lines, sys.stdout):
        print(line, flush=True)
