"""Weights & Biases: `callbacks: {wandb: {}}`. Offline by default: `wandb sync` then sends what was written."""

from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Any, Literal
from uuid import uuid4

from annotated_types import doc

from raysim.callbacks.callback import Callback, RunView
from raysim.config import Config
from raysim.engine.events import RoundDone
from raysim.records.result import Result
from raysim.system.importing import import_extra


class WeightsAndBiases(Callback):
    """Logs rounds, accuracies and the summary to Weights & Biases (the extra wandb)."""

    def __init__(
        self,
        *,
        project: Annotated[str, doc("the project that the run belongs to")] = "raysim",
        mode: Annotated[Literal["offline", "online", "disabled"], doc("whether anything is sent")] = "offline",
    ) -> None:
        self.project = project
        self.mode = mode
        self.run: Any = None

    def check(self, config: Config, protocols: Sequence[str]) -> None:
        """Raise ConfigError if wandb is not installed."""
        import_extra("wandb", "wandb")

    def on_start(self, run: RunView) -> None:
        """Begin a run with the config, or continue the run that is resumed."""
        name, config = f"{run.config.name}-{run.config.seed}", run.config.model_dump()
        folder, known = str(run.directory), run.directory / "wandb-id.txt"
        number = known.read_text() if run.round and known.exists() else uuid4().hex[:8]
        known.write_text(number)
        self.run = import_extra("wandb", "wandb").init(
            project=self.project, mode=self.mode, name=name, config=config, dir=folder, id=number, resume="allow"
        )

    def on_round(self, run: RunView, done: RoundDone) -> None:
        """Log a round's loss, records and accuracies."""
        numbers = {"loss": done.loss, "seconds": done.seconds, "bytes": done.bytes_up + done.bytes_down}
        for protocol, accuracies in (done.evaluation or {}).items():
            numbers[f"{protocol}/so_far"] = fmean(accuracies[: done.so_far])
            numbers |= {f"{protocol}/task_{task}": value for task, value in enumerate(accuracies, 1)}
        self.run.log({**numbers, **done.records}, step=done.round)

    def on_end(self, run: RunView, result: Result) -> None:
        """Write the summary, and finish."""
        for protocol, metrics in result.evaluation.items():
            self.run.summary[f"{protocol}/average_accuracy"] = metrics["average_accuracy"]
            self.run.summary[f"{protocol}/forgetting"] = metrics["forgetting"]
        self.run.finish(exit_code=0 if result.status == "done" else 1)
