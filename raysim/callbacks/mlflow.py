"""MLflow: `callbacks: {mlflow: {}}`. By default everything goes to a file below the working directory."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

from annotated_types import doc

from raysim.callbacks.callback import Callback, RunView
from raysim.config import Config
from raysim.engine.events import RoundDone
from raysim.records.result import Result
from raysim.system.importing import import_extra


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
        """Begin a run with the config's keys as parameters."""
        self.client = import_extra("mlflow", "mlflow").MlflowClient(self.uri)
        self.entities = import_extra("mlflow.entities", "mlflow")
        known = self.client.get_experiment_by_name(self.experiment)
        experiment = known.experiment_id if known else self.client.create_experiment(self.experiment)
        name = f"{run.config.name}-{run.config.seed}"
        self.id = self.client.create_run(experiment, run_name=name).info.run_id
        parameters = [self.entities.Param(key, str(value)) for key, value in flat(run.config.model_dump()).items()]
        self.client.log_batch(self.id, params=parameters)

    def on_round(self, run: RunView, done: RoundDone) -> None:
        """Log a round's loss, records and accuracies."""
        numbers: dict[str, float | None] = {"loss": done.loss, **done.records}
        for protocol, accuracies in (done.evaluation or {}).items():
            numbers |= {f"{protocol}/task_{task}": value for task, value in enumerate(accuracies, 1)}
        now = int(time.time() * 1000)
        metrics = [
            self.entities.Metric(name, value, now, done.round) for name, value in numbers.items() if value is not None
        ]
        self.client.log_batch(self.id, metrics=metrics)

    def on_end(self, run: RunView, result: Result) -> None:
        """Log the final metrics, and how the run ended."""
        for protocol, metrics in result.evaluation.items():
            if metrics["average_accuracy"] is not None:
                self.client.log_metric(self.id, f"{protocol}/average_accuracy", metrics["average_accuracy"])
        self.client.set_tag(self.id, "directory", str(run.directory))
        self.client.set_terminated(self.id, "FINISHED" if result.status == "done" else "FAILED")


def flat(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested keys as dotted ones."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{above}{key}.") if isinstance(value, dict) and value else {above + key: value}
    return found
