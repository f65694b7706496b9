"""A sweep's directory: the progress of each run below it, and sweep.yaml, which has the runs' names for reports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from raysim.config import load
from raysim.config.comparison import describe_difference
from raysim.config.lookup import only_named_by
from raysim.config.yaml_text import read_yaml, to_yaml
from raysim.evaluation.metrics import SEEN, describe_mean, metric_of
from raysim.records.result import Result, first_problem, load_result
from raysim.sweeps.cells import SWEEP_FILE, Cell
from raysim.sweeps.grid import expand_sweep
from raysim.system.errors import ConfigError
from raysim.system.files import is_partial, write_whole

RunLabels = Mapping[str, str]
"""By axis: the name of the run's value."""

RunProgress = Literal["new", "done", "interrupted", "failed", "unfinished", "undecided"]
"""Undecided is a run that waits for the trials of its candidates."""

RunEnd = Literal["done", "failed", "interrupted", "not started"]

INSTEAD = "allowed: another --out, or this directory moved out of the way"


@dataclass(frozen=True)
class RunOutcome:
    """How a run of a sweep ended, its result if it has a directory, and what went wrong."""

    cell: Cell
    directory: Path
    status: RunEnd
    result: Result | None = None
    problem: str = ""

    @property
    def accuracy(self) -> str:
        """Return the average accuracy after the last task by protocol, as text, which is empty if there is none."""
        if self.result is None:
            return ""
        return ", ".join(
            describe_mean(protocol, mean, metric_of(values), self.result.top_k)
            for protocol, values in self.result.evaluation.items()
            if (mean := values["average_accuracy"]) is not None and protocol != SEEN  # the same as class-IL's
        )


@dataclass(frozen=True)
class SweepPlan:
    """The runs of a sweep, all valid, and the progress of each in the sweep's directory.

    `renew` plans it again, after trials are done: then the runs that depend on them are known.
    """

    name: str
    out: Path
    runs: Sequence[tuple[Cell, RunProgress]]
    renew: Callable[[], "SweepPlan"]

    @property
    def to_do(self) -> list[Cell]:
        """The runs that can be carried out and are not done."""
        return [cell for cell, progress in self.runs if progress not in ("done", "undecided")]

    def outcomes(self) -> dict[str, RunOutcome]:
        """Return, by folder, the outcome of each run before the sweep continues."""
        found = {cell.folder: RunOutcome(cell, self.out / cell.folder, "not started") for cell, _ in self.runs}
        for folder in (cell.folder for cell, progress in self.runs if progress == "done"):
            found[folder] = replace(found[folder], status="done", result=load_result(self.out / folder))
        return found


def plan_sweep(
    source: str | Path | Mapping[str, object],
    overrides: Sequence[str] | Mapping[str, object],
    out: str | Path | None,
) -> SweepPlan:
    """Check every run of a sweep and its directory without starting anything.

    Raises:
        ConfigError: something is wrong.
    """
    progress: dict[Cell, RunProgress] = {}

    def choose(name: str, trials: Sequence[Cell]) -> int | None:
        directory = _directory(name, out)
        progress.update((cell, find_progress(cell, directory)) for cell in trials)
        return choose_best([(directory / cell.folder, progress[cell]) for cell in trials])

    name, cells = expand_sweep(source, overrides, choose)
    directory = _directory(name, out)
    for cell in cells:
        if cell not in progress:
            progress[cell] = find_progress(cell, directory) if cell.decided else "undecided"
    renew = partial(plan_sweep, source, overrides, out)
    return SweepPlan(name, directory, [(cell, progress[cell]) for cell in cells], renew)


def _directory(name: str, out: str | Path | None) -> Path:
    return Path("runs", name) if out is None else Path(out)


def choose_best(trials: Sequence[tuple[Path, RunProgress]]) -> int | None:
    """Return the place of the trial of the best average accuracy, by the first protocol, the first of equal ones.

    One that failed, as where training diverges, is out; None if none is done, or one is yet to be carried out.
    """
    if not {progress for _, progress in trials} <= {"done", "failed"}:
        return None
    rated: dict[int, float] = {}
    for place, (directory, progress) in enumerate(trials):
        if progress == "done":
            found = next(iter(load_result(directory).evaluation.values()))
            (rated[place],) = metric_of(found).better([found["average_accuracy"] or 0.0])
    return max(rated, key=lambda place: rated[place], default=None)


def find_progress(cell: Cell, out: Path) -> RunProgress:
    """Return the progress of a run of a sweep: new, done, or how it ended early.

    Args:
        cell: the run.
        out: the sweep's directory.

    Raises:
        ConfigError: its directory holds something else, another config's run, or a run that cannot be read.
    """
    directory = out / cell.folder
    for place in (out, *(parent for parent in reversed(directory.parents) if out in parent.parents), directory):
        if place.exists() and not place.is_dir():
            raise ConfigError(f"{place}: this is a file, allowed: a directory of this sweep")
        if place != directory and any((place / name).is_file() for name in ("config.yaml", "rounds.jsonl")):
            raise ConfigError(f"{place}: this is a run's directory, and '{cell.folder}' would lie in it; {INSTEAD}")
    held = sorted(path for path in directory.iterdir() if not is_partial(path)) if directory.is_dir() else []
    if not held:
        return "new"
    if directory / "config.yaml" not in held:
        raise ConfigError(f"{directory}: found {held[0].name} and no config.yaml, so this is no run's; {INSTEAD}")
    ended = load_result(directory) if directory / "summary.json" in held else None
    status = "unfinished" if ended is None else ended.status
    with only_named_by(cell.config):
        unlike = describe_difference(load(directory / "config.yaml"), cell.config)
    if unlike is not None:
        raise ConfigError(f"{directory}: a run ({status}) of another config is there: {unlike}; {INSTEAD}")
    if status == "done":
        return "done"
    return "failed" if status == "failed" else "interrupted" if status == "interrupted" else "unfinished"


def read_labels(out: str | Path) -> Mapping[str, RunLabels]:
    """Return the names on every axis of each run of a sweep, by its folder.

    Raises:
        ConfigError: the directory has no sweep.yaml, or one that raysim did not write.
    """
    document = read_yaml(Path(out) / SWEEP_FILE)
    try:
        return TypeAdapter(Mapping[str, RunLabels]).validate_python(document.values.get("runs"), strict=True)
    except ValidationError as error:
        words = "allowed: a file that a sweep wrote; give another --out"
        raise ConfigError(f"{document.file}: runs: {first_problem(error)}, {words}") from None


def register_runs(out: Path, name: str, cells: Sequence[Cell]) -> None:
    """Write the sweep's runs into its sweep.yaml; other runs listed there stay as long as they have a directory.

    Raises:
        ConfigError: there is a sweep.yaml that raysim did not write, or nothing can be written there.
    """
    here = {cell.folder: dict(cell.labels) for cell in cells}
    before = read_labels(out) if (out / SWEEP_FILE).exists() else {}
    kept = {folder: names for folder, names in before.items() if folder not in here and (out / folder).is_dir()}
    # reports have the order of this file, which a part of the grid leaves as it was
    earlier = {folder: here.get(folder) or kept[folder] for folder in before if folder in here or folder in kept}
    try:
        write_whole(out / SWEEP_FILE, to_yaml({"name": name, "runs": {**(earlier if kept else {}), **here}}))
    except OSError as error:
        raise ConfigError(f"--out {out}: it cannot be written to: {error.strerror or error}") from error
