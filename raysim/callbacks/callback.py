"""The base class of callbacks, and their view of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysim.config import Config
from raysim.config.schema import folder_name
from raysim.engine.events import RoundDone
from raysim.records.figures import png
from raysim.records.notes import Note
from raysim.records.result import Result
from raysim.records.run_directory import ROUNDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Callback:
    """Receives a run's events in the driver, in order. Every hook does nothing by default.

    The keyword-only parameters of a subclass are its keys. A run that another process resumes constructs a new object,
    which receives the events from there on. If a hook raises, the run ends and keeps its newest checkpoint.
    """

    def check(self, config: Config, protocols: Sequence[str]) -> None:
        """Raise ConfigError if the callback does not suit the config or the protocols of its evaluations.

        It is called before the run starts, and by `raysim check`.
        """

    def on_start(self, run: RunView) -> None:
        """All hosts are ready. `run.round` rounds were done before."""

    def on_task_begin(self, run: RunView, task: int) -> None:
        """A task begins, counted from 1. If clients are not in step, it is a row of the matrix."""

    def on_round(self, run: RunView, done: RoundDone) -> None:
        """A round is done. Each round is reported once, even if it is recomputed after a loss."""

    def on_evaluation(self, run: RunView, done: RoundDone) -> None:
        """After `on_round`: `done.evaluation` has the accuracies, by protocol, on every task's test set."""

    def on_task_end(self, run: RunView, done: RoundDone) -> None:
        """After `on_evaluation`: a task ends with this round."""

    def on_loss(self, run: RunView, why: str, back_to: int) -> None:
        """A process was lost. The rounds after `back_to` are recomputed, but not reported again."""

    def on_end(self, run: RunView, result: Result) -> None:
        """The run has ended, whatever its `result.status`; the summary is written."""


class RunView:
    """One callback's view of its run. It can record numbers and figures, and end the run.

    Attributes:
        name: the callback's name.
        config: the resolved config.
        directory: the run's directory.
        rounds: the number of rounds of the whole run.
        round: the number of rounds done.
        started: whether the callback has received `on_start`.
        notes: the records that are not written yet.
        stopped: the reason to end the run, once the callback has called `stop`.
    """

    def __init__(self, name: str, config: Config, directory: Path) -> None:
        self.name = name
        self.config = config
        self.directory = directory
        self.rounds = self.round = 0
        self.started = False
        self.notes: list[Note] = []
        self.stopped: str | None = None

    def record(self, name: str, value: float) -> None:
        """Record a number: a line of callbacks.jsonl, and in TensorBoard callbacks/NAME at this round.

        The run ends with a RunError if another callback records a number of this name.
        """
        self.notes.append(Note(self.round, self.name, str(name), float(value)))

    def record_figure(self, name: str, figure: Figure) -> None:
        """Record a matplotlib figure: figures/NAME-ROUND.png, and in TensorBoard callbacks/NAME at this round.

        Raises ValueError if NAME is not a valid file name. The run ends with a RunError if another callback records a
        figure of this name.
        """
        self.notes.append(Note(self.round, self.name, folder_name(name), png(figure)))

    def stop(self, why: str) -> None:
        """End the run with this round. Its status is done, and `stopped_by` in the summary names the callback."""
        self.stopped = self.stopped or str(why)

    def earlier_rounds(self) -> list[Mapping[str, Any]]:
        """Return the finished rounds as in rounds.jsonl. In `on_start` these are the rounds before a resume."""
        lines = (self.directory / ROUNDS).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines[: self.round]]
