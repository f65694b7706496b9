"""Recording of a run's events in its directory as they arrive, and of its summary, however the run ends."""

from __future__ import annotations

import platform
import subprocess
import time
from contextlib import ExitStack
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from raysim.config import Config
from raysim.engine.compatibility import make_methods
from raysim.engine.events import Checkpoint, Event, Finished, RoundDone, Started
from raysim.engine.vectorised.support import clients_together
from raysim.federation.federation import Federation
from raysim.federation.holdings import find_holdings
from raysim.models.flat import FlatModel
from raysim.records.checkpoints import Checkpoints, Recorded, SavedCheckpoint
from raysim.records.figures import can_draw, timeline_image
from raysim.records.identity import find_changed, identify, join_identities, refuse_other_inputs
from raysim.records.notes import Note
from raysim.records.result import Result, write_result
from raysim.records.run_directory import (
    ROUNDS,
    Interruptions,
    RunFiles,
    check_growing,
    claim_directory,
    count_lost,
    cut_back,
    find_interruption,
    load_recorded_rounds,
    sha256,
)
from raysim.records.totals import Totals
from raysim.system.errors import RunError
from raysim.system.files import convert_write_errors, lock_directory
from raysim.system.footprint import Footprint
from raysim.system.version import VERSION


class Recorder:
    """Recorder of a run's events in its directory, which also writes the summary at the run's end.

    Args:
        config: the resolved config.
        federation: its data.
        model: its initial model.
        directory: absent or empty; or the run's own, which is then resumed from its newest checkpoint, or restarted.
        began: when the run began, by time.perf_counter.
        footprint: the memory that it takes.
        new: whether the run has no directory yet.

    Raises:
        RunError: the checkpoint is damaged or belongs to another run, or nothing can be written.
        ConfigError: another process is using the directory, or has used it since the run began. Or the run would
            resume with other data or files than it began with.
    """

    def __init__(
        self,
        config: Config,
        federation: Federation,
        model: FlatModel,
        directory: Path,
        began: float,
        footprint: Footprint,
        new: bool,
    ) -> None:
        self.directory = directory
        self.config = config
        self._began = began
        self.footprint = footprint
        self._interrupted = False
        self._stop_at: tuple[str, int] | None = None
        self._facts: dict[str, Any] = {"seconds_starting": 0.0, "actors": 0, "model_sha256": None, "per_client": None}
        self._facts["test_samples"] = [len(task.test) for task in federation.tasks]
        counted = federation.objective.counts and not config.evaluation.averages_clients
        self._samples = self._facts["test_samples"] if counted else None  # of accuracies over samples
        self._now = identify(config, federation, model)
        self._refuse = partial(refuse_other_inputs, config, federation)
        self.checkpoints = Checkpoints(directory, config, VERSION)
        self._interruptions = Interruptions(directory)
        with ExitStack() as entered:
            entered.enter_context(lock_directory(directory, "run"))
            if new:  # another run may have come and gone while this one read its data
                claim_directory(directory)
            recorded = self._find_start(find_interruption(directory))
            self._seconds_before = recorded.seconds  # taken by the processes before this one
            footprint.reach(recorded.peak_memory_bytes)
            self._open(recorded)
            if self.saved is None:
                self._describe_clients(federation)
            self._lock = entered.pop_all()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self._lock:
            try:
                self._files.close()
            except RunError:
                if error is None:  # otherwise the error being raised is the one to report
                    raise

    @property
    def status(self) -> Literal["done", "interrupted"]:
        """How the run ended, once its last event has arrived."""
        return "interrupted" if self._interrupted and self.stopped_by is None else "done"

    @property
    def stopped_by(self) -> str | None:
        """The callback that has ended the run before its last round, if one has."""
        if self._stop_at is None or not self._interrupted:
            return None
        callback, after = self._stop_at
        return callback if self._totals.rounds == after else None

    def stop_at(self, callback: str, round: int) -> None:
        """Note that the run is to end after a round, as a callback asks."""
        self._stop_at = callback, round

    def note(self, note: Note) -> None:
        """Write what a callback records. Raises RunError if it cannot be written."""
        self._files.write_note(note)

    def take(self, event: Event) -> None:
        """Record one event. Raises RunError if it cannot be written."""
        match event:
            case Started():
                if event.machine is not None:
                    self._now["machine"] = event.machine
                self._facts["seconds_starting"] = self._facts["seconds_starting"] or time.perf_counter() - self._began
                self._facts["actors"] = event.actors
                if event.evaluation is not None:
                    self._totals.begin(event.evaluation)
            case RoundDone():
                self._totals.add(event)
                self._files.write_round(event, self._totals)
            case Checkpoint():
                self.footprint.add(event.peaks)
                files = self._files.flush()
                recorded = Recorded(files, self._totals, self._seconds(), self.footprint.peak_bytes, self._identity)
                self.checkpoints.write(event, recorded)
            case Finished():
                self.footprint.add(event.peaks)
                self._interrupted = event.interrupted
                if self.stopped_by is not None:
                    self._totals.end_row()  # of the task that it was stopped in
                self._facts |= {"model_sha256": sha256(event.state), "per_client": event.per_client}
                self._files.write_model(event.state)

    def go_back(self, why: str) -> int:
        """Return everything to the state of `saved`, the newest checkpoint, after a loss; return its round."""
        self._files.close()
        self._open(self._find_start(why))
        return self.saved.round if self.saved else 0

    def end(self, status: str, problem: str | None = None) -> Result:
        """Write summary.json and return its contents. Raises RunError if it cannot be written.

        Args:
            status: how the run ended.
            problem: why it failed, in one line; None if it did not.
        """
        config = self.config
        result = Result(
            name=config.name,
            seed=config.seed,
            methods=list(config.methods),
            clients_together=clients_together(config, make_methods(config)),
            status=status,
            problem=problem,
            stopped_by=self.stopped_by if status == "done" else None,
            clients=config.clients.count,
            tasks=config.scenario.tasks,
            top_k=config.evaluation.top_k,
            tested=config.evaluation.model,
            seconds=self._seconds(),
            peak_memory_bytes=self.footprint.peak_bytes,
            recoveries=self._interruptions.count,
            rounds_recomputed=self._interruptions.rounds,
            versions={**find_versions(), **self._identity},
            directory=self.directory,
            **self._facts,
            **self._totals.summarise(config.in_step, config.objective.make().metric, self._samples),
        )
        write_result(result)
        return result

    def _describe_clients(self, federation: Federation) -> None:
        """Write down what every client holds, and where tasks do not change at once, who is at which task when."""
        timeline = None if self.config.together else federation.availability.timeline()
        if timeline is not None and can_draw():
            self._files.write_picture("clients_at_tasks.png", timeline_image(timeline), "clients_at_tasks")
        if holdings := find_holdings(federation, timeline):
            self._files.write_holdings(holdings)

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._began

    @property
    def changed(self) -> list[str]:
        """What is other than before the checkpoint that the run has resumed from, by its names in the identity."""
        return find_changed(self._before, self._now)

    @property
    def _identity(self) -> dict[str, str]:
        """The identity of the run's rounds so far."""
        return join_identities(self._before, self._now)

    def _find_start(self, lost_by: str | None) -> Recorded:
        """Return what the directory held at the newest checkpoint, after noting the rounds that this loses, if any."""
        self.saved: SavedCheckpoint | None = self.checkpoints.latest()
        start = Recorded({}, Totals([0] * self.config.clients.count))
        recorded = start if self.saved is None else self.saved.recorded
        self._refuse(recorded.identity, self._now, self.directory)
        self._before = recorded.identity
        check_growing(self.directory, recorded.files)
        load_recorded_rounds(self.directory, recorded.files.get(ROUNDS, 0))  # refuse a damaged file before any change
        lost = count_lost(self.directory, recorded.files)
        if lost_by is not None or lost:  # a second Ctrl-C or a SIGTERM ends a run in the middle of a round
            back_to = self.saved.round if self.saved else 0
            self._interruptions.note(lost_by or "the run was interrupted before a checkpoint", back_to, lost)
        return recorded

    def _open(self, recorded: Recorded) -> None:
        """Cut the directory back to what it held then, and open its files."""
        self._totals = recorded.tally
        with convert_write_errors(self.directory, self.directory):
            cut_back(self.directory, recorded.files)
        self._files = RunFiles(self.config, self.directory, self._samples)


def find_versions() -> dict[str, str | None]:
    """Return the versions of python, torch, ray and raysim, and raysim's git commit; None for an unknown one."""
    packages = {package: _find_version(package) for package in ("torch", "ray")}
    return {"python": platform.python_version(), **packages, "raysim": VERSION, "git": _find_commit()}


@cache  # a process keeps the code that it has imported
def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@cache
def _find_commit() -> str | None:
    git = partial(subprocess.run, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5)
    try:
        known = git(["git", "ls-files", "--error-unmatch", __file__])
        head = git(["git", "rev-parse", "HEAD"])
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() or None if known.returncode == 0 else None
