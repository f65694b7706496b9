"""What a sweep is about to do: its runs, all valid, and how far each has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raysim.records.result import load_result
from raysim.sweeps.grid import Cell, cells
from raysim.sweeps.outcome import Outcome
from raysim.sweeps.reading import read_sweep
from raysim.sweeps.resuming import Standing, standing


@dataclass(frozen=True)
class Agenda:
    """The runs of a sweep, all valid, and how far each has come in the sweep's directory."""

    name: str
    out: Path
    runs: Sequence[tuple[Cell, Standing]]

    @property
    def to_do(self) -> list[Cell]:
        """Return the runs that are not done."""
        return [cell for cell, standing in self.runs if standing != "done"]

    def outcome(self, cell: Cell, standing: Standing) -> Outcome:
        """Return what has become of a run so far."""
        directory = self.out / cell.folder
        if standing == "done":
            return Outcome(cell, directory, "done", load_result(directory))
        return Outcome(cell, directory, "not started")


def prepare(
    source: str | Path | Mapping[str, object],
    overrides: Sequence[str] | Mapping[str, object],
    out: str | Path | None,
) -> Agenda:
    """Check every run of a sweep and its place, and start nothing.

    Raises:
        ConfigError: something is wrong.
    """
    read = read_sweep(source, overrides)
    directory = Path(out) if out is not None else Path("runs") / read.name
    return Agenda(read.name, directory, [(cell, standing(cell, directory)) for cell in cells(read)])
