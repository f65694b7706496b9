"""Totals of a run's events: the figures of summary.json that are counted round by round."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from raysim.engine.events import Accuracies, Forgotten, RoundDone
from raysim.evaluation import accuracy_matrix
from raysim.objectives import Metric

# which become seconds_per_round and evaluation
OF_ROUNDS_AND_TASKS = ("round_seconds", "untrained", "matrices", "spreads", "unfinished")


@dataclass
class Totals:
    """The figures so far, all plain numbers and lists, so that JSON keeps them exactly.

    `matrices` are the accuracy matrices by protocol, and `spreads` matrices of the clients' worst and std. `untrained`
    has the accuracies before the first round. `unfinished` has the last round's evaluation and spread, if they are no
    row of the matrices. `participation` counts each client's updates.
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
    spreads: dict[str, dict[str, list[list[float]]]] = field(default_factory=dict)
    unfinished: dict[str, Any] = field(default_factory=dict)
    forgotten: list[Forgotten] = field(default_factory=list)

    def begin(self, untrained: Accuracies) -> None:
        """Store the untrained model's accuracies by protocol."""
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
        self.forgotten += event.forgotten or ()
        self.unfinished = {"evaluation": event.evaluation, "spread": event.spread}
        if event.task_done:
            self.end_row()

    def end_row(self) -> None:
        """Take the last round's accuracies, if it has been evaluated, as the matrices' next row."""
        unfinished, self.unfinished = self.unfinished, {}
        for protocol, row in (unfinished.get("evaluation") or {}).items():
            if protocol in self.matrices:  # an older version of raysim may have begun the run without this protocol
                self.matrices[protocol].append(list(row))
        for protocol, spread in (unfinished.get("spread") or {}).items():
            of_protocol = self.spreads.setdefault(protocol, {"worst": [], "std": []})
            of_protocol["worst"].append(list(spread["worst"]))
            of_protocol["std"].append(list(spread["std"]))

    def summarise(self, in_step: bool, metric: Metric, samples: Sequence[int] | None) -> dict[str, Any]:
        """Return the keys of summary.json that are counted by round. Arguments are as in accuracy_matrix.summarise."""
        untrained: dict[str, list[float] | None] = {**self.untrained, accuracy_matrix.SEEN: None}
        counted = {key: value for key, value in vars(self).items() if key not in OF_ROUNDS_AND_TASKS}
        evaluation = {
            protocol: {
                **accuracy_matrix.summarise(matrix, untrained[protocol], in_step, metric, samples),
                **self.spreads.get(protocol, {}),
            }
            for protocol, matrix in self.matrices.items()
        }
        seconds = median(self.round_seconds) if self.round_seconds else None
        return {**counted, "evaluation": evaluation, "seconds_per_round": seconds}
