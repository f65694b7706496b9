"""What has become of a run of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from raysim.evaluation.metrics import PROTOCOL_NAMES
from raysim.records.result import Result
from raysim.sweeps.grid import Cell

Status = Literal["done", "failed", "interrupted", "not started"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended, what it came to where it has a directory, and what went wrong."""

    cell: Cell
    directory: Path
    status: Status
    result: Result | None = None
    problem: str = ""

    @property
    def accuracy(self) -> str:
        """Return the average accuracy after the last task, in words, by protocol; nothing where there is none."""
        evaluation = self.result.evaluation if self.result else {}
        means = {protocol: values["average_accuracy"] for protocol, values in evaluation.items()}
        return ", ".join(
            f"{PROTOCOL_NAMES[protocol]} {100 * mean:.1f}%" for protocol, mean in means.items() if mean is not None
        )
