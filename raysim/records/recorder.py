"""A run from its start to its summary: recorded while it goes on, and summed up however it ends."""

from __future__ import annotations

import platform
import subprocess
import time
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Literal

from raysim.config import Config
from raysim.engine.events import Checkpoint, Event, Finished, Started
from raysim.federation.federation import Federation
from raysim.records.checkpoints import Checkpoints, Saved
from raysim.records.figures import timeline_image
from raysim.records.interruptions import Losses, unfinished
from raysim.records.result import Result, load
from raysim.records.run_directory import Recording, going_back, rounds_since
from raysim.system.files import writing
from raysim.system.footprint import Footprint
from raysim.system.lock import alone


class Course:
    """Records a run's events in its directory, and writes the summary at its end.

    Args:
        config: the resolved config.
        federation: its data.
        directory: absent or empty; or the run's own, which then goes on from its newest checkpoint, or from the start.
        began: when the run began, by time.perf_counter.
        footprint: the memory that it takes.

    Raises:
        RunError: the checkpoint is damaged, or another run's; or nothing can be written.
        ConfigError: another process is at work in the directory.
    """

    def __init__(
        self, config: Config, federation: Federation, directory: Path, began: float, footprint: Footprint
    ) -> None:
        self._config = config
        self._footprint = footprint
        self._actors = 0
        self.directory = directory
        self._began = began
        self._starting = 0.0
        self._made_with = versions()
        self.checkpoints = Checkpoints(directory, config, self._made_with["raysim"])
        self._losses = Losses(directory)
        with ExitStack() as entered:
            entered.enter_context(alone(directory, "run"))
            self._recording = self._opened(unfinished(directory))
            self._earlier = 0.0
            if self.saved is not None:
                self._earlier = float(self.saved.recorded["seconds"])
                footprint.reach(int(self.saved.recorded.get("peak_memory_bytes", 0)))
            if self.saved is None and not config.together:
                self._recording.picture("clients_at_tasks", timeline_image(federation.availability.timeline()))
            self._leaving = entered.pop_all()

    def __enter__(self) -> Course:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._leaving:
            self._recording.__exit__(kind, error, trace)

    @property
    def status(self) -> Literal["done", "interrupted"]:
        """Return how a run ended whose last event has come: done or interrupted."""
        return "interrupted" if self._recording.interrupted else "done"

    def take(self, event: Event) -> None:
        """Write down one event. Raises RunError where it cannot be written."""
        if isinstance(event, Started):
            self._starting = self._starting or time.perf_counter() - self._began
            self._actors = event.actors
        elif isinstance(event, Checkpoint):
            self._footprint.add(event.peaks)
            more = {"seconds": self._seconds(), "peak_memory_bytes": self._footprint.peak_bytes}
            self.checkpoints.write(event, {**self._recording.position(), **more})
        elif isinstance(event, Finished):
            self._footprint.add(event.peaks)
        self._recording.take(event)

    def go_back(self, why: str) -> None:
        """Bring everything to where `saved`, the newest checkpoint, has it, after a loss."""
        self._recording.__exit__(None, None, None)
        self._recording = self._opened(why)

    def end(self, status: str) -> Result:
        """Write summary.json and return what it says. Raises RunError where it cannot be written."""
        recording = self._recording
        seconds = recording.tally.round_seconds
        recording.summarise(
            status,
            seconds=self._seconds(),
            seconds_per_round=median(seconds) if seconds else None,
            seconds_starting=self._starting,
            peak_memory_bytes=self._footprint.peak_bytes,
            actors=self._actors,
            recoveries=self._losses.count,
            rounds_recomputed=self._losses.rounds,
            versions=self._made_with,
        )
        return load(recording.directory)

    def _seconds(self) -> float:
        return self._earlier + time.perf_counter() - self._began

    def _opened(self, lost_by: str | None) -> Recording:
        """Cut the directory back to the newest checkpoint; first note the rounds that are lost, if any run was."""
        self.saved: Saved | None = self.checkpoints.latest()
        recorded = None if self.saved is None else self.saved.recorded
        lost = rounds_since(self.directory, recorded)
        if lost_by is not None or lost:  # a second Ctrl-C and SIGTERM end a run in the middle of a round
            why = lost_by or "the run was interrupted before a checkpoint"
            self._losses.note(why, 0 if self.saved is None else self.saved.round, lost)
        with writing(self.directory, self.directory):
            going_back(self.directory, recorded)
        return Recording(self._config, self.directory, recorded)


def versions() -> dict[str, str | None]:
    """Return what the result depends on: python, torch, ray, raysim, and raysim's git commit where it has one."""
    return {
        "python": platform.python_version(),
        **{package: _version(package) for package in ("torch", "ray", "raysim")},
        "git": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        known = subprocess.run(
            ["git", "ls-files", "--error-unmatch", __file__], cwd=here, capture_output=True, timeout=5
        )
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() or None if known.returncode == 0 else None
