"""A sweep's directory: the progress of each run below it, and sweep.yaml, which has the runs' names for reports."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from raysim.config import load
from raysim.config.comparison import describe_difference
from raysim.config.lookup import only_named_by
from raysim.config.yaml_text import read_yaml, to_yaml
from raysim.evaluation.metrics import SEEN, describe_mean, metric_of
from raysim.records.result import Result, first_problem, load_result
from raysim.sweeps.cells import SWEEP_FILE, Cell, Remark
from raysim.sweeps.grid import expand_sweep
from raysim.system.errors import ConfigError
from raysim.system.files import is_partial, write_whole

RunLabels = Mapping[str, str]
"""By axis: the name of the run's value."""


class SweepLabels(BaseModel):
    """The content of a sweep's sweep.yaml.

    Attributes:
        name: the name of the sweep.
        runs: by the folder of each run, in the sweep's order, its names on the axes.
        chosen: by the folder of each run with tuned values, these values as text.
        remarks: by folder, what readers of reports should know about a run.
    """

    name: str
    runs: Mapping[str, RunLabels]
    chosen: Mapping[str, str] = {}
    remarks: Mapping[str, Remark] = {}


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

    def rate(name: str, trial: Cell) -> float | None:
        progress[trial] = find_progress(trial, _directory(name, out))
        return rate_trial(_directory(name, out) / trial.folder, progress[trial])

    name, cells = expand_sweep(source, overrides, rate)
    directory = _directory(name, out)
    for cell in cells:
        if cell not in progress:
            progress[cell] = find_progress(cell, directory) if cell.decided else "undecided"
    renew = partial(plan_sweep, source, overrides, out)
    return SweepPlan(name, directory, [(cell, progress[cell]) for cell in cells], renew)


def _directory(name: str, out: str | Path | None) -> Path:
    return Path("runs", name) if out is None else Path(out)


def rate_trial(directory: Path, progress: RunProgress) -> float | None:
    """Return a trial's average accuracy by its first protocol, or minus its error if less is better.

    One that failed, as where training diverges, has -inf; None if it is yet to be carried out.
    """
    if progress != "done":
        return -math.inf if progress == "failed" else None
    found = next(iter(load_result(directory).evaluation.values()))
    return metric_of(found).better([found["average_accuracy"] or 0.0])[0]


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


def read_labels(out: str | Path) -> SweepLabels:
    """Return the name of a sweep, and the names and tuned values of its runs.

    Raises:
        ConfigError: the directory has no sweep.yaml, or one that raysim did not write.
    """
    document = read_yaml(Path(out) / SWEEP_FILE)
    try:
        return SweepLabels.model_validate(document.values, strict=True)
    except ValidationError as error:
        words = "allowed: a file that a sweep wrote; give another --out"
        raise ConfigError(f"{document.file}: {first_problem(error)}, {words}") from None


def register_runs(out: Path, name: str, cells: Sequence[Cell]) -> None:
    """Write the sweep's runs into its sweep.yaml; other runs listed there stay as long as they have a directory.

    Raises:
        ConfigError: there is a sweep.yaml that raysim did not write, or nothing can be written there.
    """
    here = {cell.folder: dict(cell.labels) for cell in cells}
    before = read_labels(out) if (out / SWEEP_FILE).exists() else SweepLabels(name=name, runs={})
    kept = {folder: names for folder, names in before.runs.items() if folder not in here and (out / folder).is_dir()}
    # reports have the order of this file, which a part of the grid leaves as it was
    earlier = {folder: here.get(folder) or kept[folder] for folder in before.runs if folder in here or folder in kept}
    chosen = {folder: text for folder, text in before.chosen.items() if folder in kept}
    chosen |= {cell.folder: cell.chosen for cell in cells if cell.chosen}
    remarks = {folder: remark for folder, remark in before.remarks.items() if folder in kept}
    remarks |= {cell.folder: cell.remark for cell in cells if cell.remark is not None}
    labels = SweepLabels(name=name, runs={**(earlier if kept else {}), **here}, chosen=chosen, remarks=remarks)
    try:
        write_whole(out / SWEEP_FILE, to_yaml(labels.model_dump(exclude_defaults=True)))
    except OSError as error:
        raise ConfigError(f"--out {out}: it cannot be written to: {error.strerror or error}") from error
