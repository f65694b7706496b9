"""MLflow: `callbacks: {mlflow: {}}`. By default everything goes to a file below the working directory."""

import re
import time
from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import doc

from raysim.callbacks.callback import Callback, RunView
from raysim.config import Config
from raysim.config.comparison import flatten_settings
from raysim.engine.events import RoundDone
from raysim.records.result import Result
from raysim.system.importing import import_extra

STATUSES = {"done": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MLflow(Callback):
    """Logs the config, and metrics by round, to MLflow (the extra mlflow)."""

    def __init__(
        self,
        *,
        uri: Annotated[str, doc("where MLflow keeps runs: a file, a folder or a server")] = "sqlite:///mlflow.db",
        experiment: Annotated[str, doc("the experiment that the run belongs to")] = "raysim",
    ) -> None:
        self.uri = uri
        self.client: Any = None
        self.entities: Any = None
        self.experiment = experiment
        self.id = ""

    def check(self, config: Config, protocols: Sequence[str]) -> None:
        """Raise ConfigError if MLflow is not installed."""
        import_extra("mlflow", "mlflow")

    def on_start(self, run: RunView) -> None:
        """Begin a run with the config's keys as parameters, or continue the run that is resumed."""
        self.client = import_extra("mlflow", "mlflow").MlflowClient(self.uri)
        self.entities = import_extra("mlflow.entities", "mlflow")
        known = run.directory / "mlflow-id.txt"
        if run.round and known.exists():
            self.id = known.read_text()
            self.client.update_run(self.id, "RUNNING")
            return
        found = self.client.get_experiment_by_name(self.experiment)
        experiment = found.experiment_id if found else self.client.create_experiment(self.experiment)
        name = f"{run.config.name}-{run.config.seed}"
        self.id = self.client.create_run(experiment, run_name=name).info.run_id
        known.write_text(self.id)
        settings = flatten_settings(run.config).items()
        parameters = [self.entities.Param(_name(key), str(value)) for key, value in settings]
        self.client.log_batch(self.id, params=parameters)

    def on_round(self, run: RunView, done: RoundDone) -> None:
        """Log a round's loss, records and accuracies."""
        numbers: dict[str, float | None] = {"loss": done.loss, **done.records}
        for protocol, accuracies in (done.evaluation or {}).items():
            numbers |= {f"{protocol}/task_{task}": value for task, value in enumerate(accuracies, 1)}
        now = int(time.time() * 1000)
        metrics = [
            self.entities.Metric(_name(name), value, now, done.round)
            for name, value in numbers.items()
            if value is not None
        ]
        self.client.log_batch(self.id, metrics=metrics)

    def on_end(self, run: RunView, result: Result) -> None:
        """Log the final metrics, and how the run ended."""
        for protocol, metrics in result.evaluation.items():
            if metrics["average_accuracy"] is not None:
                self.client.log_metric(self.id, f"{protocol}/average_accuracy", metrics["average_accuracy"])
        self.client.set_tag(self.id, "directory", str(run.directory))
        self.client.set_terminated(self.id, STATUSES[result.status])


def _name(key: str) -> str:
    """Return a key as MLflow takes it. Not all versions take the colon of a custom component's name."""
    return re.sub(r"[^\w/. -]", "_", key)
