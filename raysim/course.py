"""A run from its start to its summary: recorded while it goes on, and summed up however it ends."""

from __future__ import annotations

import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Literal

from raysim.config import Config
from raysim.events import Event, Started
from raysim.federation import Federation
from raysim.figures import timeline_image
from raysim.recording import Recording
from raysim.result import Result, load


class Course:
    """Records a run's events in its directory, and writes the summary at its end.

    Args:
        config: the resolved config.
        federation: its data.
        directory: absent or empty.
        began: when the run began, by time.perf_counter.
    """

    def __init__(self, config: Config, federation: Federation, directory: Path, began: float) -> None:
        self._recording = Recording(config, directory)
        if not config.together:
            self._recording.picture("clients_at_tasks", timeline_image(federation.calendar.timeline()))
        self._began = began
        self._starting = 0.0
        self._made_with = versions()

    def __enter__(self) -> Course:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recording.__exit__(kind, error, trace)

    @property
    def status(self) -> Literal["done", "interrupted"]:
        """Return how a run ended whose last event has come: done or interrupted."""
        return "interrupted" if self._recording.interrupted else "done"

    def take(self, event: Event) -> None:
        """Write down one event."""
        if isinstance(event, Started):
            self._starting = time.perf_counter() - self._began
        self._recording.take(event)

    def end(self, status: str, peak_memory_bytes: int) -> Result:
        """Write summary.json and return what it says."""
        recording = self._recording
        recording.summarise(
            status,
            seconds=time.perf_counter() - self._began,
            seconds_per_round=median(recording.round_seconds) if recording.round_seconds else None,
            seconds_starting=self._starting,
            peak_memory_bytes=peak_memory_bytes,
            recoveries=0,
            rounds_recomputed=0,
            versions=self._made_with,
        )
        return load(recording.directory)


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
