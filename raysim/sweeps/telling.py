"""What the runs of a sweep tell while they go on, in this process or far away."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

from raysim.engine.events import Event
from raysim.federation.federation import Federation
from raysim.sweeps.grid import Cell
from raysim.system.errors import ConfigError, RunError


@dataclass(frozen=True)
class Begun:
    """A run has its data and starts; it began, with reading them, at that time.perf_counter."""

    cell: Cell
    federation: Federation
    began: float


@dataclass(frozen=True)
class Heard:
    """A run's next event, and the most memory that its process has taken so far."""

    cell: Cell
    event: Event
    peak_memory_bytes: int


@dataclass(frozen=True)
class Failed:
    """A run's end before its end; one that has not begun had no data that serve it."""

    cell: Cell
    error: ConfigError | RunError


Told = Begun | Heard | Failed


class Runs(Protocol):
    """Carries runs out, one after the other or several at a time."""

    def told(self) -> Generator[Told, None, None]:
        """Carry all out, and tell what happens; nothing goes on once this is left."""

    def stop(self) -> None:
        """Begin no more runs, and let those under way end after the round in progress."""
