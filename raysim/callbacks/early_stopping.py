"""Early stopping: a run ends when a metric has not improved for some evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated, Any, Literal

from annotated_types import Ge, doc

from raysim.callbacks.callback import Callback, RunView
from raysim.config import Config
from raysim.engine.events import RoundDone, line
from raysim.system.errors import ConfigError

ACCURACY, LOSS = "accuracy", "loss"


@dataclass(kw_only=True)
class EarlyStopping(Callback):
    """Ends the run when a metric has not improved for some evaluations in a row.

    The comparison restarts when more tasks enter the mean, as this is another quantity. A resumed run also counts the
    rounds before, so it ends in the same round as an uninterrupted run.
    """

    metric: Annotated[
        str, doc("accuracy (the tests' mean so far, of any objective), loss (of training), a method's record")
    ] = ACCURACY
    protocol: Annotated[str | None, doc("by which the accuracy is measured; null is the run's first")] = None
    patience: Annotated[int, Ge(1), doc("evaluations (accuracy) or rounds (others) in a row without improvement")] = 5
    min_delta: Annotated[float, Ge(0), doc("improvements of at most this do not count")] = 0.0
    mode: Annotated[
        Literal["auto", "max", "min"],
        doc("which direction is better; auto knows it for the tests' metric and the loss"),
    ] = "auto"

    _so_far: int = field(default=0, init=False)
    _best: tuple[float, int] | None = field(default=None, init=False)
    _worse: int = field(default=0, init=False)
    _higher_is_better: bool = field(default=True, init=False)  # for the tests' metric

    def check(self, config: Config, protocols: Sequence[str]) -> None:
        """Refuse settings that could never stop: another protocol, one evaluation per task, an unknown direction."""
        if self.protocol is not None and self.protocol not in protocols:
            raise ConfigError(f"protocol: found '{self.protocol}', allowed: {' or '.join(protocols)}, as the tasks are")
        if self.metric == ACCURACY and config.evaluation.every_rounds is None and config.in_step:
            problem = "found an evaluation per task, allowed: evaluation.every_rounds, to see a task become no better"
            raise ConfigError(f"metric: {problem}; or metric: {LOSS}")
        self._higher_is_better = config.objective.make().metric.higher_is_better
        if self.metric not in (ACCURACY, LOSS) and self.mode == "auto":
            raise ConfigError(f"mode: found auto for '{self.metric}', allowed: max or min, whichever is better")

    def on_start(self, run: RunView) -> None:
        """Forget an earlier run of the same object, and count the rounds before a resume."""
        self._so_far, self._best, self._worse = 0, None, 0
        exhausted = False
        for earlier in run.earlier_rounds():
            exhausted = self._count(earlier)
        self._stop_if(exhausted, run)  # the process ended after the last round, before the summary

    def on_round(self, run: RunView, done: RoundDone) -> None:
        """Count a round, and end the run if patience has run out."""
        self._stop_if(self._count(line(done)), run)

    def _stop_if(self, exhausted: bool, run: RunView) -> None:
        if exhausted and self._best is not None:
            best, when = self._best
            reason = f"{self.metric} has not been better than {best:.4g} of round {when}"
            run.stop(f"{reason} for {self._worse} {'evaluations' if self.metric == ACCURACY else 'rounds'}")

    def _count(self, done: Mapping[str, Any]) -> bool:
        """Return whether patience runs out with a round, given as in rounds.jsonl."""
        value = self._value(done)
        if value is None:
            return False
        if done["so_far"] != self._so_far:
            self._so_far, self._best = done["so_far"], None
        upwards = self.metric == ACCURACY and self._higher_is_better if self.mode == "auto" else self.mode == "max"
        sign = 1 if upwards else -1
        if self._best is None or sign * (value - self._best[0]) > self.min_delta:
            self._best, self._worse = (value, done["round"]), 0
        else:
            self._worse += 1
        return self._worse >= self.patience

    def _value(self, done: Mapping[str, Any]) -> float | None:
        if self.metric != ACCURACY:
            value: float | None = done["loss"] if self.metric == LOSS else done["records"].get(self.metric)
            return value
        evaluation = done.get("evaluation")
        if evaluation is None:
            return None
        row = evaluation[self.protocol or next(iter(evaluation))]
        return fmean(row[: done["so_far"]])
