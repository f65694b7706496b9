"""The columns of the tables: what is read off a run, in which unit, and which end of it is the better one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from raysim.report.reading import Evaluation, Run


@dataclass(frozen=True)
class Quantity:
    """A number of a run. `scale` takes it from summary.json's unit (fractions, bytes, seconds) to the shown one."""

    key: str
    heading: str
    unit: str
    scale: float
    digits: int
    higher_is_better: bool

    @property
    def title(self) -> str:
        """The heading with its unit."""
        return f"{self.heading}, {self.unit}"

    def of(self, protocol: str) -> Callable[[Run], float | None]:
        """Return what reads it off a run in its shown unit; None where the run has none."""

        def read(run: Run) -> float | None:
            holder = run.evaluation.get(protocol) if self.key in Evaluation.model_fields else run.summary
            found: float | None = getattr(holder, self.key, None)
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
COSTS = (
    Quantity("seconds_per_round", "time per round", "s", 1, 3, False),
    Quantity("bytes_up", "sent up", "MiB", 2**-20, 2, False),
    Quantity("bytes_down", "sent down", "MiB", 2**-20, 2, False),
)
