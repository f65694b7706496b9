"""Finished runs below some directories: found by their summary.json, read and checked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from raysim.config.yaml_reading import read_yaml
from raysim.report.validation import first_problem
from raysim.sweeps.grid import FILE
from raysim.sweeps.register import Labels, labels
from raysim.system.errors import ConfigError

Sweep = Mapping[str, Labels]


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class Evaluation(_Read):
    """What summary.json says of one protocol: accuracy is a[t][i], T x T; all are fractions, None where undefined."""

    accuracy: list[list[float]]
    average_accuracy: float | None
    forgetting: float | None
    final_forgetting: float | None
    backward_transfer: float | None
    forward_transfer: float | None


class OverClients(_Read):
    """What summary.json says of the clients' own accuracies under one protocol: fractions, None where undefined."""

    mean: float | None
    worst: float | None
    std: float | None


class Summary(_Read):
    """What a report needs of summary.json; other keys are let be, as older and newer ones have others."""

    name: str
    seed: int
    status: str
    tasks: int
    rounds: int
    updates: int
    evaluation: dict[str, Evaluation]
    per_client: dict[str, OverClients] = {}
    bytes_up: int
    bytes_down: int
    seconds: float
    seconds_per_round: float | None
    peak_memory_bytes: int
    model_sha256: str | None
    versions: dict[str, str | None]


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run: its directory as the user wrote it, its summary, and its config.yaml as plain values.

    The config is not validated again, so that a run whose own components lie elsewhere today can still be reported.
    `names` is what the sweep that it belongs to calls it on each axis; a run of no sweep has none.
    """

    directory: Path
    summary: Summary
    config: Mapping[str, object]
    names: Labels

    @property
    def evaluation(self) -> Mapping[str, Evaluation]:
        """The results by protocol."""
        return self.summary.evaluation

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return f"raysim run {shlex.quote(str(self.directory / 'config.yaml'))}"

    @property
    def methods(self) -> Mapping[str, Mapping[str, object]]:
        """The methods in their order, each with its knobs."""
        found = self.config.get("methods")
        blocks = found if isinstance(found, Mapping) else {}
        return {name: knobs if isinstance(knobs, Mapping) else {} for name, knobs in blocks.items()}


@dataclass
class Found:
    """The finished runs, and one line for every other directory that looks like a run's."""

    runs: list[Run] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def find(directories: Sequence[Path]) -> Found:
    """Return the finished runs at any depth below the directories, by path; each once.

    Raises:
        ConfigError: a directory cannot be read, or no finished run is below any.
    """
    found = Found()
    sweep_in = cache(_sweep_in)  # many runs belong to one sweep
    for directory in directories:
        _check(directory)
    for path in _candidates(directories, found.left_out):
        try:
            found.runs.append(_read(path, sweep_in))
        except ConfigError as error:
            found.left_out.append(str(error))
    if not found.runs:
        below = ", ".join(str(directory) for directory in directories)
        more = f" ({len(found.left_out)} left out; {found.left_out[0]})" if found.left_out else ""
        raise ConfigError(
            f"{below}: found no finished run{more}, allowed: directories that hold one at any depth, with a "
            "summary.json of status done"
        )
    return found


def _check(directory: Path) -> None:
    try:
        os.scandir(directory).close()
    except FileNotFoundError:
        raise ConfigError(f"{directory}: there is no such directory") from None
    except NotADirectoryError:
        raise ConfigError(f"{directory}: this is a file, allowed: a directory with runs below it") from None
    except OSError as error:
        raise ConfigError(f"{directory}: the directory cannot be read: {error.strerror}") from None


def _candidates(directories: Sequence[Path], left_out: list[str]) -> Iterator[Path]:
    """Yield the directories with a summary.json; say which of the others cannot be read or were begun only."""
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


def _read(directory: Path, sweep_in: Callable[[Path], Sweep | None]) -> Run:
    path = directory / "summary.json"
    try:
        summary = Summary.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error)}; allowed: a summary.json that raysim wrote") from None
    if summary.status != "done":
        raise ConfigError(f"{directory}: found the status {summary.status}, counted: done")
    if not summary.evaluation:
        raise ConfigError(f"{path}: evaluation: found no protocol")
    for protocol, values in summary.evaluation.items():
        if {len(values.accuracy), *map(len, values.accuracy)} != {summary.tasks}:
            size = f"{summary.tasks} x {summary.tasks} tasks"
            raise ConfigError(f"{path}: evaluation.{protocol}.accuracy: found no matrix of {size}")
    return Run(directory, summary, read_yaml(directory / "config.yaml").values, _names(directory, sweep_in))


def _names(directory: Path, sweep_in: Callable[[Path], Sweep | None]) -> Labels:
    """Return what the nearest sweep above a run's directory calls it on each axis."""
    for above in directory.parents:
        sweep = sweep_in(above)
        if sweep is not None:
            return sweep.get(directory.relative_to(above).as_posix(), {})
    return {}


def _sweep_in(directory: Path) -> Sweep | None:
    """Return the names of a sweep's runs by their folders; None where there is none, or somebody else's sweep.yaml."""
    if (directory / FILE).is_file():
        with suppress(ConfigError):
            return labels(directory)
    return None
