"""Find and check the finished runs below directories: directories of runs, and files of packed runs."""

import copy
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import cast

from raysim.config import validate
from raysim.config.document import Document, to_plain
from raysim.config.lookup import only_named_by
from raysim.config.yaml_text import read_yaml, to_yaml
from raysim.evaluation.accuracy_matrix import metric_of
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.records.result import Result, describe_unfinished, load_result
from raysim.reports.packed import SUFFIX, PackedFile, PackedRun, find_packed, packed_directory, read_packed
from raysim.reports.round_records import RoundRecord, read_rounds
from raysim.sweeps.cells import SWEEP_FILE, Remark
from raysim.sweeps.directory import RunLabels, SweepLabels, read_labels
from raysim.system.errors import ConfigError, single_line
from raysim.system.progress import Tell, tell_nothing

Methods = Mapping[str, Mapping[str, object]]
"""The hyperparameters by method, in the methods' order."""


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run.

    Attributes:
        directory: the run's directory, below the path that the user gave.
        summary: its summary.json.
        document: its config.yaml, with the keys that raysim had when it was made.
        names: its name on each axis of the sweep that it belongs to; empty without a sweep.
        chosen: the values that the sweep tuned, as text.
        chosen_in: where they were tuned, if that is another setting.
        remark: what the sweep says about it.
        sweep: the name of that sweep.
        place: sorts runs as their sweeps do, of one directory after the other.
        packed: its line of a packed file, if it was read from one.
    """

    directory: Path
    summary: Result
    document: Document
    names: RunLabels = field(default_factory=dict)
    chosen: str = ""
    chosen_in: str = ""
    remark: Remark | None = None
    sweep: str = ""
    place: tuple[str, int] = ("", 0)
    packed: PackedRun | None = None

    @cached_property  # a trial's is never asked for, and takes milliseconds
    def config(self) -> Mapping[str, object]:
        """Its config.yaml as plain values, with the defaults of keys that raysim did not have when it was made."""
        return _complete(replace(self.document, values=copy.deepcopy(self.document.values)))

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
        """The methods in their order, each with its hyperparameters."""
        found = self.config.get("methods")
        blocks = found if isinstance(found, Mapping) else {}
        return {name: knobs if isinstance(knobs, Mapping) else {} for name, knobs in blocks.items()}


def find_runs(
    directories: Sequence[Path],
    left_out: list[str],
    tell: Tell = tell_nothing,
    unfinished: list[FinishedRun] | None = None,
) -> list[FinishedRun]:
    """Return the finished runs at any depth below the directories, by path; each once.

    A file NAME.jsonl.gz of packed runs counts as the directory NAME. A run that is in both is read from the directory.

    Args:
        directories: where to look.
        left_out: receives a line for every other directory that looks like a run's, and for every file below the
            directories that cannot be read.
        tell: is called with how far the reading is.
        unfinished: receives the runs that failed or were interrupted, which have a line in `left_out` too.

    Raises:
        ConfigError: a directory or a packed file among `directories` cannot be read, or no finished run is below any.
    """
    runs: list[FinishedRun] = []
    for read in _list_runs(directories, left_out):
        try:
            run = read()
        except ConfigError as error:
            left_out.append(str(error))
            continue
        summary = run.summary
        if summary.status == "done":
            runs.append(run)
            tell(f"reading runs: {len(runs)}")
            continue
        which = f"{' + '.join(summary.methods) or 'FedAvg'}, seed {summary.seed}"
        why = "" if summary.problem is None else f": {summary.problem}"
        left_out.append(f"{run.directory}: found the status {summary.status}, counted: done ({which}){why}")
        if unfinished is not None:
            unfinished.append(run)
    if not runs:
        below = ", ".join(str(directory) for directory in directories)
        more = f" ({len(left_out)} left out; {left_out[0]})" if left_out else ""
        raise ConfigError(
            f"{below}: found no finished run{more}, so nothing was written; allowed: directories that hold one at any "
            "depth, with a summary.json of status done"
        )
    return runs


def _list_runs(directories: Sequence[Path], left_out: list[str]) -> Iterator[Callable[[], FinishedRun]]:
    """Yield a function for each run that reads it; the arguments and errors are those of find_runs."""
    walked: set[Path] = set()
    listed: set[Path] = set()
    sweep_in = cache(partial(_sweep_in, left_out=left_out))  # many runs belong to one sweep

    def of_packed(packed: PackedFile, below: Path) -> Iterator[Callable[[], FinishedRun]]:
        for run in packed.runs:
            directory = packed.directory / run.path
            if not directory.is_relative_to(below) or (directory / "summary.json").is_file():
                continue
            if directory.resolve() not in listed:
                listed.add(directory.resolve())
                yield partial(_unpack_run, run, directory, packed)

    def not_there(directory: Path) -> Iterator[str]:
        """Yield a line if a sweep lists runs that have no directory: they are yet to come, or failed at their start."""
        listed = [] if (sweep := sweep_in(directory.absolute())) is None else [*sweep.runs]
        missing = [folder for folder in listed if not (directory / folder).is_dir()]
        if missing and not find_packed(directory):
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            words = f"found no directory of {', '.join(missing[:3])}{more}"
            yield f"{directory / SWEEP_FILE}: {words}, counted: runs that began ({len(listed)} are listed)"

    named = [(packed_directory(directory), _read_named(directory, left_out)) for directory in directories]
    for directory, packed in named:
        for path, files in _walk(directory, walked, left_out):
            if "summary.json" in files:
                yield partial(_read_run, path, sweep_in)
            elif {"config.yaml", "rounds.jsonl"} <= files:
                left_out.append(describe_unfinished(path))
            if SWEEP_FILE in files:
                left_out += not_there(path)
            for name in sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX)):
                file = path / (name + SUFFIX)
                try:
                    if file.is_file():  # reading a pipe would block
                        yield from of_packed(read_packed(file), path / name)
                except ConfigError as error:
                    left_out.append(str(error))
        if packed:
            yield from of_packed(packed, directory)


def _read_named(directory: Path, left_out: list[str]) -> PackedFile | None:
    """Return the packed file that has a directory's runs, if any.

    Raises:
        ConfigError: there is neither a readable packed file nor a directory.
    """
    file = find_packed(directory)
    try:
        if file:
            return read_packed(file)
    except ConfigError as error:
        if not directory.is_dir():
            raise
        left_out.append(str(error))
    if not directory.is_dir():
        found = "this is a file" if directory.exists() else "there is no such directory"
        raise ConfigError(f"{directory}: {found}, allowed: a directory with runs below it")
    return None


def _walk(directory: Path, walked: set[Path], left_out: list[str]) -> Iterator[tuple[Path, set[str]]]:
    """Yield each directory at or below a directory with its files, except those in `walked`, which it adds to."""

    def unreadable(error: OSError) -> None:
        left_out.append(f"{error.filename}: the directory cannot be read: {error.strerror}")

    for where, below, files in os.walk(directory, onerror=unreadable) if directory.exists() else ():
        below.sort()
        path = Path(where)
        if path.resolve() not in walked:
            walked.add(path.resolve())
            yield path, set(files)


def _read_run(directory: Path, sweep_in: Callable[[Path], SweepLabels | None]) -> FinishedRun:
    run = _check(FinishedRun(directory, load_result(directory), read_yaml(directory / "config.yaml")))
    named = ((parent, sweep) for parent in directory.absolute().parents if (sweep := sweep_in(parent)))
    return _name_run(run, *next(named, (directory, None)))  # the nearest sweep above a run names it


def _unpack_run(packed: PackedRun, directory: Path, file: PackedFile) -> FinishedRun:
    summary = replace(packed.summary, directory=directory).completed()
    document = Document(str(directory / "config.yaml"), packed.config)
    run = _check(FinishedRun(directory, summary, document, packed=packed))
    return _name_run(run, file.directory, file.sweep)


def _check(run: FinishedRun) -> FinishedRun:
    """Return the run, one of an older version with accuracies over samples if its tasks have as many test samples each.

    Such tasks are the transformations of one dataset: with them, the mean over samples is the mean over tasks.

    Raises:
        ConfigError: the run is done, and its matrices are not those of its tasks.
    """
    summary, path = run.summary, run.directory / "summary.json"
    if summary.status != "done":
        return run
    if not summary.evaluation:
        raise ConfigError(f"{path}: evaluation: found no protocol")
    for protocol, values in summary.evaluation.items():
        if {len(values["accuracy"]), *map(len, values["accuracy"])} != {summary.tasks}:
            size = f"{summary.tasks} x {summary.tasks} tasks"
            size += f", as {summary.stopped_by} stopped the run before the last task" * (summary.stopped_by is not None)
            raise ConfigError(f"{path}: evaluation.{protocol}.accuracy: found no matrix of {size}")
    if summary.tested != "global" or summary.test_samples:
        return run
    scenario = run.config.get("scenario")
    one_dataset = isinstance(scenario, Mapping) and scenario.get("shift") in ("rotation", "permutation")
    accuracy = metric_of(next(iter(summary.evaluation.values()))) == ACCURACY_METRIC
    return replace(run, summary=summary.completed([1] * summary.tasks)) if one_dataset and accuracy else run


def _name_run(run: FinishedRun, directory: Path, sweep: SweepLabels | None) -> FinishedRun:
    """Return the run with its names and its place in the sweep of a directory, if the sweep lists it."""
    folder = run.directory.absolute().relative_to(directory.absolute()).as_posix()
    if sweep is None or folder not in sweep.runs:
        return run
    place = (str(directory), [*sweep.runs].index(folder))
    return replace(
        run,
        names=sweep.runs[folder],
        chosen=sweep.chosen.get(folder, ""),
        chosen_in=sweep.chosen_in.get(folder, ""),
        remark=sweep.remarks.get(folder),
        sweep=sweep.name,
        place=place,
    )


def _complete(document: Document) -> Mapping[str, object]:
    """Return a config's values, with the defaults of keys that raysim did not have when the run was made."""
    try:
        with only_named_by():
            return cast(Mapping[str, object], to_plain(validate(document)))
    except ConfigError:  # of a custom component, or of a version that is no longer read
        return document.values


def _sweep_in(directory: Path, left_out: list[str]) -> SweepLabels | None:
    """Return the content of a directory's sweep.yaml, or None if there is none that raysim wrote.

    `left_out` gets a line if it cannot be read. A sweep's config, which has a grid, may have the same name.
    """
    file = directory / SWEEP_FILE
    if not file.is_file():
        return None
    try:
        return read_labels(directory)
    except ConfigError as error:
        with suppress(ConfigError):
            if "grid" in read_yaml(file).values:
                return None
        left_out.append(f"{error}; runs below have no names, and trials count as runs")
        return None
