"""Finished runs below some directories: found by their summary.json, read and checked; their rounds.jsonl on demand."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from pydantic import BaseModel, ConfigDict, ValidationError

from raysim.config import validate
from raysim.config.document import Document, to_plain
from raysim.config.lookup import only_named_by
from raysim.config.yaml_reading import read_yaml
from raysim.records.result import Result, first_problem, load_result
from raysim.sweeps.cells import SWEEP_FILE
from raysim.sweeps.directory import RunLabels, read_labels
from raysim.system.errors import ConfigError, single_line

Methods = Mapping[str, Mapping[str, object]]
"""By method, in their order: its knobs."""


class RoundRecord(BaseModel):
    """One line of rounds.jsonl: a server update. Bytes are of all clients; accuracies are fractions, one per task.

    `so_far` is how many tasks, from the first, may have been seen by then; lines of older versions do not have it.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    round: int
    tasks: list[int]
    so_far: int | None = None
    bytes_up: int
    bytes_down: int
    seconds: float | None = None
    staleness: list[int] = []
    virtual_time: float | None = None
    dispatches: list[tuple[int, float, float, str]] | None = None
    memory: list[list[int]] | None = None
    evaluation: dict[str, list[float]] | None = None


@dataclass(frozen=True)
class NamedRuns:
    """A sweep's directory and name, and, by the folder of each run in the sweep's order, its names on the axes."""

    directory: Path
    name: str
    runs: Mapping[str, RunLabels]


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run: its directory as the user wrote it, its summary, and its config.yaml as plain values.

    The config has today's keys where it is still a valid one; a run whose own components have moved is reported too.
    `names` is what the sweep that it belongs to calls it on each axis; a run of no sweep has none. `place` orders the
    runs as their sweeps do, of one directory after the other.
    """

    directory: Path
    summary: Result
    config: Mapping[str, object]
    names: RunLabels
    sweep: str = ""
    place: tuple[str, int] = ("", 0)

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return single_line(f"raysim run {shlex.quote(str(self.directory / 'config.yaml'))}")

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

    `left_out` gets one line for every other directory that looks like a run's; `tell` is told how far the reading is.

    Raises:
        ConfigError: a directory cannot be read, or no finished run is below any.
    """
    runs: list[FinishedRun] = []
    sweep_in = cache(_sweep_in)  # many runs belong to one sweep
    for directory in directories:
        if not directory.is_dir():
            found = "this is a file" if directory.exists() else "there is no such directory"
            raise ConfigError(f"{directory}: {found}, allowed: a directory with runs below it")
    for path in _candidates(directories, left_out):
        try:
            runs.append(_read_run(path, sweep_in))
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


def read_rounds(directory: Path) -> Sequence[RoundRecord]:
    """Return the rounds of a run in their order.

    Raises:
        ConfigError: there is no rounds.jsonl, or not one of raysim's.
    """
    path = directory / "rounds.jsonl"
    rounds: list[RoundRecord] = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            rounds.append(RoundRecord.model_validate_json(line))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: found bytes that are no UTF-8") from None
    except ValidationError as error:
        raise ConfigError(f"{path}:{len(rounds) + 1}: {first_problem(error)}") from None
    return rounds


def _candidates(directories: Sequence[Path], left_out: list[str]) -> Iterator[Path]:
    """Yield the directories with a summary.json; say which of the others cannot be read or were only begun."""
    seen: set[Path] = set()

    def unreadable(error: OSError) -> None:
        left_out.append(f"{error.filename}: the directory cannot be read: {error.strerror}")

    for directory in directories:
        for where, below, files in os.walk(directory, onerror=unreadable):
            below.sort()
            path = Path(where)
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            if "summary.json" in files:
                yield path
            elif {"config.yaml", "rounds.jsonl"} <= set(files):
                left_out.append(f"{path}: no summary.json: the run is under way or was killed")


def _read_run(directory: Path, sweep_in: Callable[[Path], NamedRuns | None]) -> FinishedRun:
    path, summary = directory / "summary.json", load_result(directory)
    if summary.status != "done":
        raise ConfigError(f"{directory}: found the status {summary.status}, counted: done")
    if not summary.evaluation:
        raise ConfigError(f"{path}: evaluation: found no protocol")
    for protocol, values in summary.evaluation.items():
        if {len(values["accuracy"]), *map(len, values["accuracy"])} != {summary.tasks}:
            size = f"{summary.tasks} x {summary.tasks} tasks"
            size += f", as {summary.stopped_by} stopped the run before the last task" * (summary.stopped_by is not None)
            raise ConfigError(f"{path}: evaluation.{protocol}.accuracy: found no matrix of {size}")
    config = _complete(read_yaml(directory / "config.yaml"))
    sweep = next(filter(None, map(sweep_in, directory.parents)), None)  # the nearest one above a run names it
    folder = "" if sweep is None else directory.relative_to(sweep.directory).as_posix()
    if sweep is None or folder not in sweep.runs:
        return FinishedRun(directory, summary, config, {})
    place = (str(sweep.directory), [*sweep.runs].index(folder))
    return FinishedRun(directory, summary, config, sweep.runs[folder], sweep.name, place)


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
