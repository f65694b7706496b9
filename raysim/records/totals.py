"""What a run's events add up to: the figures of summary.json that are counted round by round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from raysim.engine.events import Accuracies, RoundDone
from raysim.evaluation import metrics


@dataclass
class Totals:
    """Figures so far, all plain numbers and lists, so that JSON keeps them exactly.

    `matrices` are the accuracy matrices by protocol, `untrained` the accuracies before the first round; `participation`
    counts each client's updates.
    """

    participation: list[int]
    rounds: int = 0
    updates: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    steps: int = 0
    virtual_time: float = 0.0
    round_seconds: list[float] = field(default_factory=list)
    untrained: dict[str, list[float]] = field(default_factory=dict)
    matrices: dict[str, list[list[float]]] = field(default_factory=dict)

    def begin(self, untrained: Accuracies) -> None:
        """Take the untrained model's accuracies by protocol."""
        self.untrained = {protocol: list(row) for protocol, row in untrained.items()}
        self.matrices = {protocol: [] for protocol in untrained}

    def add(self, event: RoundDone) -> None:
        """Count one round."""
        self.rounds += 1
        self.updates += len(event.cohort)
        for client in event.cohort:
            self.participation[client] += 1
        self.virtual_time = event.virtual_time
        self.bytes_up += event.bytes_up
        self.bytes_down += event.bytes_down
        self.steps += event.steps
        self.round_seconds.append(event.seconds)
        if event.task_done and event.evaluation is not None:
            for protocol, row in event.evaluation.items():
                self.matrices[protocol].append(list(row))

    @property
    def seconds_per_round(self) -> float | None:
        """The median, None before the first round."""
        return median(self.round_seconds) if self.round_seconds else None

    def evaluation(self, in_step: bool) -> Mapping[str, Mapping[str, object]]:
        """Return the metrics by protocol over the tasks that are done; `in_step` as in metrics.summarise."""
        return {
            protocol: metrics.summarise(matrix, self.untrained[protocol], in_step)
            for protocol, matrix in self.matrices.items()
        }
