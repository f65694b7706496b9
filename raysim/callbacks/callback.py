"""What a callback overrides, and what it sees of its run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysim.config import Config
from raysim.config.schema import folder_name
from raysim.engine.events import RoundDone
from raysim.records.figures import pixels
from raysim.records.notes import Note
from raysim.records.result import Result
from raysim.records.run_directory import ROUNDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Callback:
    """What is told of a run's events, in the driver, in their order; every hook does nothing unless it is overridden.

    Its keyword-only parameters are its keys. A run that is resumed by another process makes a new one, which is told
    from there on. A hook that raises ends the run, which keeps its newest checkpoint.
    """

    def check(self, config: Config, protocols: Sequence[str]) -> None:
        """Raise ConfigError if it does not suit the config, or the protocols of its evaluations; nothing has started.

        Also called by `raysim check`.
        """

    def on_start(self, run: RunView) -> None:
        """All hosts are ready; `run.round` rounds were done before."""

    def on_task_begin(self, run: RunView, task: int) -> None:
        """A task begins, counted from 1; where clients are not in step, a part of the run (a row of the matrix)."""

    def on_round(self, run: RunView, done: RoundDone) -> None:
        """A round is done; each is told once, also where a loss has it computed again."""

    def on_evaluation(self, run: RunView, done: RoundDone) -> None:
        """`done.evaluation` has the accuracies, by protocol, on every task's test set; after `on_round`."""

    def on_task_end(self, run: RunView, done: RoundDone) -> None:
        """A task ends with this round; after `on_evaluation`."""

    def on_loss(self, run: RunView, why: str, back_to: int) -> None:
        """A process was lost; the rounds after `back_to` are computed again, and not told again."""

    def on_end(self, run: RunView, result: Result) -> None:
        """The run has ended, whatever its `result.status`; the summary is written."""


class RunView:
    """What one callback sees of its run, and what it may do: record, and end the run.

    Attributes:
        config: the resolved config.
        directory: the run's directory.
        rounds: how many rounds the whole run has.
        round: how many are done.
        started: whether the callback was told that the run has started.
        notes: what has been recorded and not been written yet.
        stopped: why the run is to end, once the callback has said so.
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
        """Record a number: a line of callbacks.jsonl, and in TensorBoard callbacks/NAME at this round."""
        self.notes.append(Note(self.round, self.name, str(name), float(value)))

    def record_figure(self, name: str, figure: Figure) -> None:
        """Record a matplotlib figure: figures/NAME-ROUND.png, and in TensorBoard callbacks/NAME at this round.

        Raises ValueError where NAME is no name for a file.
        """
        self.notes.append(Note(self.round, self.name, folder_name(name), pixels(figure)))

    def stop(self, why: str) -> None:
        """End the run with this round: its status is done, and `stopped_by` in the summary names the callback."""
        self.stopped = self.stopped or str(why)

    def earlier_rounds(self) -> list[Mapping[str, Any]]:
        """Return the rounds that are done as rounds.jsonl has them: in `on_start`, those of the processes before."""
        lines = (self.directory / ROUNDS).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines[: self.round]]
