"""A sweep's directory: the progress of each run below it, and sweep.yaml, which has the runs' names for reports."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, cast

from pydantic import BaseModel, ValidationError

from raysim.config import load
from raysim.config.comparison import describe_difference
from raysim.config.document import Overrides
from raysim.config.lookup import only_named_by
from raysim.config.yaml_text import read_yaml, to_yaml
from raysim.evaluation.accuracy_matrix import SEEN, describe_mean, metric_of
from raysim.records.result import Result, first_problem, load_result
from raysim.sweeps.cells import SWEEP_FILE, Cell, Remark
from raysim.sweeps.grid import read_sweep
from raysim.sweeps.search import Rate
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
        chosen_in: by folder, of those that take what other values have chosen: these others.
        remarks: by folder, what readers of reports should know about a run.
    """

    name: str
    runs: Mapping[str, RunLabels]
    chosen: Mapping[str, str] = {}
    chosen_in: Mapping[str, str] = {}
    remarks: Mapping[str, Remark] = {}


RunProgress = Literal["new", "done", "interrupted", "failed", "unfinished", "diverged", "undecided", "outdated"]
"""Undecided is a run that waits for the trials of its candidates, outdated one with another candidate than the best."""

RunEnd = Literal["done", "failed", "interrupted", "diverged", "not started"]
"""Diverged is a trial; any other run that diverges has failed."""

DIVERGED = "diverged"  # an empty file in a trial's directory, since a summary does not say why a run failed

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

    `renew` plans it again, after trials are done: then the runs that depend on them are known. It receives the folders
    of the trials that have failed since, which are not waited for. It reads no config again.
    """

    name: str
    out: Path
    runs: Sequence[tuple[Cell, RunProgress]]
    renew: Callable[[Collection[str]], "SweepPlan"]

    @property
    def to_do(self) -> list[Cell]:
        """The runs that can be carried out and are not done."""
        return [cell for cell, progress in self.runs if progress in ("new", "interrupted", "failed", "unfinished")]

    def outcomes(self) -> dict[str, RunOutcome]:
        """Return, by folder, the outcome of each run before the sweep continues."""
        found: dict[str, RunOutcome] = {}
        for cell, progress in self.runs:
            place = self.out / cell.folder
            if progress in ("done", "diverged"):
                found[cell.folder] = RunOutcome(cell, place, progress, load_result(place))
            elif progress == "outdated":
                words = f"trials have chosen {cell.chosen}, and a run with other values is there: "
                words += f"{_difference(cell, place)}; remove this directory and repeat the sweep"
                found[cell.folder] = RunOutcome(cell, place, "failed", problem=words)
            else:
                words = "" if cell.decided else "waits for its trials"
                found[cell.folder] = RunOutcome(cell, place, "not started", problem=words)
        return found


def plan_sweep(
    source: str | Path | Mapping[str, object],
    overrides: Overrides,
    out: str | Path | None,
) -> SweepPlan:
    """Check every run of a sweep and its directory without starting anything.

    Raises:
        ConfigError: something is wrong.
    """
    name, expand = read_sweep(source, overrides)
    return _plan(name, Path("runs", name) if out is None else Path(out), expand)


def _plan(name: str, out: Path, expand: Callable[[Rate], list[Cell]], failed: Collection[str] = ()) -> SweepPlan:
    progress: dict[Cell, RunProgress] = {}

    def rate(trial: Cell) -> float | None:
        progress[trial] = find_progress(trial, out)
        return -math.inf if trial.folder in failed else rate_trial(out / trial.folder, progress[trial])

    runs = [(cell, progress.get(cell) or find_progress(cell, out)) for cell in expand(rate)]
    return SweepPlan(name, out, runs, partial(_plan, name, out, expand))


def rate_trial(directory: Path, progress: RunProgress) -> float | None:
    """Return a trial's average accuracy by its first protocol, or minus its error if less is better.

    One that diverged or was stopped before its last task has -inf; None if it is yet to be carried out.
    """
    if progress != "done":
        return -math.inf if progress == "diverged" else None
    result = load_result(directory)
    found = next(iter(result.evaluation.values()))
    average = found["average_accuracy"]
    if average is None or (result.stopped_by is not None and len(found["accuracy"]) < result.tasks):
        return -math.inf
    return metric_of(found).better([average])[0]


def find_progress(cell: Cell, out: Path) -> RunProgress:
    """Return the progress of a run of a sweep: new, done, how it ended early, or why it cannot be carried out.

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
    if held and directory / "config.yaml" not in held:
        raise ConfigError(f"{directory}: found {held[0].name} and no config.yaml, so this is no run's; {INSTEAD}")
    if not cell.decided:
        return "undecided"
    if not held:
        return "new"
    ended = load_result(directory) if directory / "summary.json" in held else None
    status = "unfinished" if ended is None else ended.status
    if (unlike := _difference(cell, directory)) is not None:
        if cell.chosen:  # by trials that are newer than the run
            return "outdated"
        raise ConfigError(f"{directory}: a run ({status}) of another config is there: {unlike}; {INSTEAD}")
    if status == "failed" and directory / DIVERGED in held:
        return "diverged"
    return cast(RunProgress, status) if status in ("done", "failed", "interrupted") else "unfinished"


def _difference(cell: Cell, directory: Path) -> str | None:
    """Return the first key in which the config in a run's directory differs from the run's, or None."""
    with only_named_by(cell.config):
        return describe_difference(load(directory / "config.yaml"), cell.config)


def read_labels(out: str | Path) -> SweepLabels:
    """Return the name of a sweep, and the names and tuned values of its runs.

    Raises:
        ConfigError: the directory has no sweep.yaml, or one that raysim did not write.
    """
    document = read_yaml(Path(out) / SWEEP_FILE)
    try:
        return SweepLabels.model_validate(document.values, strict=True)
    except ValidationError as error:
        words = "allowed: a file that a sweep wrote"
        raise ConfigError(f"{document.file}: {first_problem(error)}, {words}") from None


def register_runs(out: Path, name: str, cells: Sequence[Cell]) -> None:
    """Write the sweep's runs into its sweep.yaml; other runs listed there stay as long as they have a directory.

    Raises:
        ConfigError: there is a sweep.yaml that raysim did not write, or nothing can be written there.
    """
    here = {cell.folder: dict(cell.labels) for cell in cells}
    try:
        before = read_labels(out) if (out / SWEEP_FILE).exists() else SweepLabels(name=name, runs={})
    except ConfigError as error:
        raise ConfigError(f"{error}; give another --out") from None
    kept = {folder: names for folder, names in before.runs.items() if folder not in here and (out / folder).is_dir()}
    # reports have the order of this file, which a part of the grid leaves as it was
    earlier = {folder: here.get(folder) or kept[folder] for folder in before.runs if folder in here or folder in kept}
    undecided = {cell.folder for cell in cells if not cell.decided}  # and perhaps done with an earlier choice
    chosen = {folder: text for folder, text in before.chosen.items() if folder in kept or folder in undecided}
    chosen |= {cell.folder: cell.chosen for cell in cells if cell.chosen}
    chosen_in = {folder: text for folder, text in before.chosen_in.items() if folder in kept}
    chosen_in |= {cell.folder: cell.chosen_in for cell in cells if cell.chosen_in}
    remarks = {folder: remark for folder, remark in before.remarks.items() if folder in kept}
    remarks |= {cell.folder: cell.remark for cell in cells if cell.remark is not None}
    runs = {**(earlier if kept else {}), **here}
    labels = SweepLabels(name=name, runs=runs, chosen=chosen, chosen_in=chosen_in, remarks=remarks)
    try:
        write_whole(out / SWEEP_FILE, to_yaml(labels.model_dump(exclude_defaults=True)))
    except OSError as error:
        raise ConfigError(f"--out {out}: it cannot be written to: {error.strerror or error}") from error
