"""Find and check the finished runs below directories: directories of runs, and files of packed runs."""

import copy
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import cast

from raysim.config import validate
from raysim.config.document import Document, to_plain
from raysim.config.lookup import only_named_by
from raysim.config.yaml_text import read_yaml, to_yaml
from raysim.records.result import Result, describe_unfinished, load_result
from raysim.reports.packed import SUFFIX, PackedFile, PackedRun, find_packed, packed_directory, read_packed
from raysim.reports.round_records import RoundRecord, read_rounds
from raysim.sweeps.cells import SWEEP_FILE
from raysim.sweeps.directory import RunLabels, read_labels
from raysim.system.errors import ConfigError, single_line

Methods = Mapping[str, Mapping[str, object]]
"""By method, in their order: its knobs."""


@dataclass(frozen=True)
class NamedRuns:
    """A sweep and the names of its runs.

    Attributes:
        directory: the sweep's directory.
        name: the sweep's name.
        runs: by the folder of each run, in the sweep's order, its names on the axes.
    """

    directory: Path
    name: str
    runs: Mapping[str, RunLabels]


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run.

    Attributes:
        directory: the run's directory, below the path that the user gave.
        summary: its summary.json.
        config: its config.yaml as plain values, with the defaults of keys that raysim did not have when it was made.
        names: its name on each axis of the sweep that it belongs to; empty without a sweep.
        sweep: the name of that sweep.
        place: sorts runs as their sweeps do, of one directory after the other.
        packed: its line of a packed file, if it was read from one.
    """

    directory: Path
    summary: Result
    config: Mapping[str, object]
    names: RunLabels
    sweep: str = ""
    place: tuple[str, int] = ("", 0)
    packed: PackedRun | None = None

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return single_line(f"raysim run {shlex.quote(str(self.directory / 'config.yaml'))}")

    @property
    def config_text(self) -> str:
        """The text of its config.yaml."""
        if self.packed:
            return to_yaml(self.packed.config)
        return (self.directory / "config.yaml").read_text("utf-8-sig")

    def rounds(self) -> Sequence[RoundRecord]:
        """Return its rounds in their order; of a packed run, those that were evaluated.

        Raises:
            ConfigError: the run recorded none, or its rounds.jsonl is broken.
        """
        if self.packed is None:
            return read_rounds(self.directory)
        if self.packed.rounds is None:
            raise ConfigError(f"{self.directory / 'rounds.jsonl'}: No such file or directory")
        return self.packed.rounds

    @property
    def methods(self) -> Methods:
        """The methods in their order, each with its knobs."""
        found = self.config.get("methods")
        blocks = found if isinstance(found, Mapping) else {}
        return {name: knobs if isinstance(knobs, Mapping) else {} for name, knobs in blocks.items()}


def find_runs(
    directories: Sequence[Path], left_out: list[str], tell: Callable[[str], None] = lambda text: None
) -> list[FinishedRun]:
    """Return the finished runs at any depth below the directories, by path; each once.

    A file NAME.jsonl.gz of packed runs counts as the directory NAME. A run that is in both is read from the directory.

    Args:
        directories: where to look.
        left_out: receives a line for every other directory that looks like a run's, and for every file below the
            directories that cannot be read.
        tell: is called with how far the reading is.

    Raises:
        ConfigError: a directory or a packed file among `directories` cannot be read, or no finished run is below any.
    """
    runs: list[FinishedRun] = []
    for read in _candidates(directories, left_out):
        try:
            runs.append(read())
            tell(f"reading runs: {len(runs)}")
        except ConfigError as error:
            left_out.append(str(error))
    if not runs:
        below = ", ".join(str(directory) for directory in directories)
        more = f" ({len(left_out)} left out; {left_out[0]})" if left_out else ""
        raise ConfigError(
            f"{below}: found no finished run{more}, allowed: directories that hold one at any depth, with a "
            "summary.json of status done"
        )
    return runs


def _candidates(directories: Sequence[Path], left_out: list[str]) -> Iterator[Callable[[], FinishedRun]]:
    """Yield a function for each run that reads it; the arguments and errors are those of find_runs."""
    walked: set[Path] = set()
    unpacked: set[Path] = set()
    sweep_in = cache(_sweep_in)  # many runs belong to one sweep
    named: list[tuple[Path, PackedFile | None]] = []
    for directory in directories:
        file = find_packed(directory)
        if file is None and not directory.is_dir():
            found = "this is a file" if directory.exists() else "there is no such directory"
            raise ConfigError(f"{directory}: {found}, allowed: a directory with runs below it")
        named.append((packed_directory(directory), _read_named(file, directory, left_out) if file else None))
    for directory, packed in named:
        for path, below in _walk(directory, walked, left_out):
            if below is None:
                yield partial(_read_run, path, sweep_in)
            else:
                yield from _packed_candidates(below, path, unpacked)
        if packed:
            yield from _packed_candidates(packed, directory, unpacked)


def _read_named(file: Path, directory: Path, left_out: list[str]) -> PackedFile | None:
    """Read the packed file of a place; if it is broken, only a directory of runs in that place is left."""
    try:
        return read_packed(file)
    except ConfigError as error:
        if not directory.is_dir():
            raise
        left_out.append(str(error))
        return None


def _is_new(path: Path, seen: set[Path]) -> bool:
    """Say whether a place was not seen before, and note it."""
    place = path.resolve()
    new = place not in seen
    seen.add(place)
    return new


def _walk(directory: Path, seen: set[Path], left_out: list[str]) -> Iterator[tuple[Path, PackedFile | None]]:
    """Yield the directories with a summary.json, and the packed files with the directories that they stand for.

    `left_out` receives a line for what cannot be read, and for runs that were only begun.
    """

    def unreadable(error: OSError) -> None:
        left_out.append(f"{error.filename}: the directory cannot be read: {error.strerror}")

    for where, below, files in os.walk(directory, onerror=unreadable) if directory.exists() else ():
        below.sort()
        path = Path(where)
        if not _is_new(path, seen):
            continue
        if "summary.json" in files:
            yield path, None
        elif {"config.yaml", "rounds.jsonl"} <= set(files):
            left_out.append(describe_unfinished(path))
        for name in sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX)):
            file = path / (name + SUFFIX)
            try:
                if file.is_file():  # a pipe would never end
                    yield path / name, read_packed(file)
            except ConfigError as error:
                left_out.append(str(error))


def _packed_candidates(packed: PackedFile, below: Path, seen: set[Path]) -> Iterator[Callable[[], FinishedRun]]:
    """Yield a function for each run of a packed file that is at or below a place and has no directory there."""
    named = packed.sweep
    sweep = NamedRuns(packed.directory, named.name, named.runs) if named else None
    for run in packed.runs:
        directory = packed.directory / run.path
        if not directory.is_relative_to(below) or (directory / "summary.json").is_file():
            continue
        if _is_new(directory, seen):
            yield partial(_unpack_run, run, directory, sweep)


def _read_run(directory: Path, sweep_in: Callable[[Path], NamedRuns | None]) -> FinishedRun:
    summary = load_result(directory)
    _check_finished(directory, summary)
    config = _complete(read_yaml(directory / "config.yaml"))
    sweep = next(filter(None, map(sweep_in, directory.parents)), None)  # the nearest one above a run names it
    return _name_run(FinishedRun(directory, summary, config, {}), sweep)


def _unpack_run(packed: PackedRun, directory: Path, sweep: NamedRuns | None) -> FinishedRun:
    summary = replace(packed.summary, directory=directory)
    _check_finished(directory, summary)
    config = _complete(Document(str(directory / "config.yaml"), copy.deepcopy(packed.config)))
    return _name_run(FinishedRun(directory, summary, config, {}, packed=packed), sweep)


def _check_finished(directory: Path, summary: Result) -> None:
    """Raise ConfigError if the run is not done, or its matrices are not those of its tasks."""
    path = directory / "summary.json"
    if summary.status != "done":
        raise ConfigError(f"{directory}: found the status {summary.status}, counted: done")
    if not summary.evaluation:
        raise ConfigError(f"{path}: evaluation: found no protocol")
    for protocol, values in summary.evaluation.items():
        if {len(values["accuracy"]), *map(len, values["accuracy"])} != {summary.tasks}:
            size = f"{summary.tasks} x {summary.tasks} tasks"
            size += f", as {summary.stopped_by} stopped the run before the last task" * (summary.stopped_by is not None)
            raise ConfigError(f"{path}: evaluation.{protocol}.accuracy: found no matrix of {size}")


def _name_run(run: FinishedRun, sweep: NamedRuns | None) -> FinishedRun:
    """Return the run with its names and its place in its sweep, if the sweep lists it."""
    folder = "" if sweep is None else run.directory.relative_to(sweep.directory).as_posix()
    if sweep is None or folder not in sweep.runs:
        return run
    place = (str(sweep.directory), [*sweep.runs].index(folder))
    return replace(run, names=sweep.runs[folder], sweep=sweep.name, place=place)


def _complete(document: Document) -> Mapping[str, object]:
    """Return a config's values, with the defaults of keys that raysim did not have when the run was made."""
    try:
        with only_named_by():
            return cast(Mapping[str, object], to_plain(validate(document)))
    except ConfigError:  # of a component of one's own, or of a version that is no longer read
        return document.values


def _sweep_in(directory: Path) -> NamedRuns | None:
    """Return what a directory's sweep.yaml says; None where there is none, or one of another program."""
    if (directory / SWEEP_FILE).is_file():
        with suppress(ConfigError):
            name = read_yaml(directory / SWEEP_FILE).values.get("name", "")
            return NamedRuns(directory, str(name), read_labels(directory))
    return None
