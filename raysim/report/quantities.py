"""The columns of the tables: what is read off a run, in which unit, and which end of it is the better one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raysim.report.reading import Run


def _protocol(run: Run, protocol: str) -> object:
    return run.evaluation.get(protocol)


def _clients(run: Run, protocol: str) -> object:
    return run.summary.per_client.get(protocol)


def _whole_run(run: Run, protocol: str) -> object:
    return run.summary


@dataclass(frozen=True)
class Quantity:
    """A number of a run. `scale` takes it from summary.json's unit (fractions, bytes, seconds) to the shown one.

    `holder` says where in a run's summary, for a protocol, its key stands.
    """

    key: str
    heading: str
    unit: str
    scale: float
    digits: int
    higher_is_better: bool
    holder: Callable[[Run, str], object] = _protocol

    @property
    def title(self) -> str:
        """The heading with its unit."""
        return f"{self.heading}, {self.unit}"

    def of(self, protocol: str) -> Callable[[Run], float | None]:
        """Return what reads it off a run in its shown unit; None where the run has none."""

        def read(run: Run) -> float | None:
            found: float | None = getattr(self.holder(run, protocol), self.key, None)
            return None if found is None else self.scale * float(found)

        return read

    def show(self, number: float, sign: bool = False) -> str:
        """Return a number of this unit with its digits."""
        return format(number, f"{'+' if sign else ''}.{self.digits}f")


ACCURACY = Quantity("average_accuracy", "average accuracy", "%", 100, 2, True)
FORGETTING = Quantity("forgetting", "forgetting", "%", 100, 2, False)
FINAL_FORGETTING = Quantity("final_forgetting", "forgetting since the task's end", "%", 100, 2, False)
BACKWARD_TRANSFER = Quantity("backward_transfer", "backward transfer", "%", 100, 2, True)
LEARNING = (ACCURACY, FORGETTING, BACKWARD_TRANSFER)
FAIRNESS = (
    Quantity("mean", "clients' mean", "%", 100, 2, True, _clients),
    Quantity("worst", "worst client", "%", 100, 2, True, _clients),
    Quantity("std", "deviation over clients", "%", 100, 2, False, _clients),
)
COSTS = (
    Quantity("seconds_per_round", "time per round", "s", 1, 3, False, _whole_run),
    Quantity("bytes_up", "sent up", "MiB", 2**-20, 2, False, _whole_run),
    Quantity("bytes_down", "sent down", "MiB", 2**-20, 2, False, _whole_run),
)
