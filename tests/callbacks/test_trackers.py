"""The trackers, with small stand-ins for their packages: what they receive, and when."""

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import raysim
from raysim.callbacks import Callback, RunView
from raysim.engine.events import RoundDone
from raysim.launch.stop_file import STOP


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that puts a module with these parts in the place of a package."""

    def put(name: str, **parts: object) -> None:
        package = ModuleType(name)
        vars(package).update(parts)
        monkeypatch.setitem(sys.modules, name, package)

    return put


def accuracies(directory: Path) -> dict[int, list[float]]:
    lines = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    return {line["round"]: line["evaluation"]["domain_il"] for line in lines if "evaluation" in line}


class Tracked:
    """A run of Weights & Biases."""

    def __init__(self, **given: Any) -> None:
        self.given, self.summary, self.ended = given, dict[str, Any](), list[int]()
        self.logged: dict[int, dict[str, Any]] = {}

    def log(self, numbers: dict[str, Any], step: int) -> None:
        self.logged[step] = numbers

    def finish(self, exit_code: int) -> None:
        self.ended.append(exit_code)


def test_weights_and_biases(stand_in: Any, tiny: Any, tmp_path: Path) -> None:
    begun: list[Tracked] = []

    def init(**given: Any) -> Tracked:
        begun.append(Tracked(**given))
        return begun[-1]

    stand_in("wandb", init=init)
    named = {"callbacks": {"wandb": {"project": "mine"}}}
    result = raysim.run(tiny(logging__tensorboard=False), named, tmp_path / "run", True)
    (run,) = begun
    assert (run.given["project"], run.given["mode"]) == ("mine", "offline")
    assert run.given["id"] == (tmp_path / "run" / "wandb-id.txt").read_text()
    assert run.given["config"]["training"]["optimizer"]["lr"] == 0.1
    assert [*run.logged] == [1, 2, 3, 4]
    found = accuracies(tmp_path / "run")
    assert [run.logged[2]["domain_il/task_1"], run.logged[2]["domain_il/task_2"]] == found[2]
    assert run.logged[2]["domain_il/so_far"] == found[2][0]
    assert run.logged[4]["domain_il/so_far"] == pytest.approx(sum(found[4]) / 2)
    assert run.summary["domain_il/average_accuracy"] == result.evaluation["domain_il"]["average_accuracy"]
    assert run.ended == [0]


class Store:
    """MLflow's client, and what it keeps."""

    kept: dict[str, Any]

    def __init__(self, uri: str) -> None:
        self.kept["uri"] = uri

    def get_experiment_by_name(self, name: str) -> Any:
        return self.kept["experiments"].get(name)

    def create_experiment(self, name: str) -> str:
        self.kept["experiments"][name] = SimpleNamespace(experiment_id="7")
        return "7"

    def create_run(self, experiment: str, run_name: str) -> Any:
        assert experiment == "7"
        self.kept["names"].append(run_name)
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def update_run(self, run: str, status: str) -> None:
        assert run == "r"
        self.kept["statuses"].append(status)

    def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
        assert not self.kept["params"].keys() & dict(params).keys()  # MLflow refuses another value
        self.kept["params"] |= dict(params)
        for key, value, _, step in metrics:
            self.log_metric(run, key, value, step)

    def log_metric(self, run: str, key: str, value: float, step: int = 0) -> None:
        assert math.isfinite(value)
        self.kept["metrics"].setdefault(key, []).append((step, value))

    def set_tag(self, run: str, key: str, value: str) -> None:
        self.kept["tags"][key] = value

    def set_terminated(self, run: str, status: str) -> None:
        self.kept["statuses"].append(status)


@pytest.fixture
def kept(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What MLflow keeps, empty at first."""
    stand_in("mlflow", MlflowClient=Store)
    stand_in("mlflow.entities", Metric=lambda *fields: fields, Param=lambda *fields: fields)
    empty = {"names": [], "experiments": {}, "params": {}, "metrics": {}, "tags": {}, "statuses": []}
    monkeypatch.setattr(Store, "kept", empty, raising=False)
    return Store.kept


def test_mlflow(kept: dict[str, Any], tiny: Any, tmp_path: Path) -> None:
    named = {"callbacks": {"mlflow": {"uri": "sqlite:///x.db"}}}
    result = raysim.run(tiny(logging__tensorboard=False), named, tmp_path / "run", True)
    assert (kept["uri"], kept["names"], kept["statuses"]) == ("sqlite:///x.db", ["tiny-0"], ["FINISHED"])
    assert (kept["params"]["training.optimizer.lr"], kept["params"]["methods"]) == ("0.1", "fedavg")
    assert [step for step, _ in kept["metrics"]["loss"]] == [1, 2, 3, 4]
    found = accuracies(tmp_path / "run")
    assert kept["metrics"]["domain_il/task_2"] == [(round, row[1]) for round, row in found.items()]
    average = result.evaluation["domain_il"]["average_accuracy"]
    assert kept["metrics"]["domain_il/average_accuracy"] == [(0, average)]


class Ask(Callback):
    """Asks for the run's end after round 2, as `raysim live` does."""

    def on_round(self, run: RunView, done: RoundDone) -> None:
        if done.round == 2:
            (run.directory / STOP).touch()


def test_a_resumed_run_continues_its_run_of_mlflow(kept: dict[str, Any], tiny: Any, tmp_path: Path) -> None:
    out, named = tmp_path / "run", {"callbacks": {"mlflow": {}}}
    assert raysim.run(tiny(logging__tensorboard=False), named, out, True, callbacks=[Ask()]).status == "interrupted"
    assert kept["statuses"] == ["KILLED"]
    assert raysim.run(None, out=out, local=True, resume=True).status == "done"
    assert (kept["names"], kept["statuses"]) == (["tiny-0"], ["KILLED", "RUNNING", "FINISHED"])
    assert [step for step, _ in kept["metrics"]["loss"]] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_without_the_package_nothing_starts(
    name: str, tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    words = rf"^callbacks\.{name}: the package {name} cannot be imported .*; pip install 'raysim-cfl\[{name}\]'$"
    with pytest.raises(raysim.ConfigError, match=words):
        raysim.run(tiny(), {"callbacks": {name: {}}}, tmp_path / "run", True)
    assert not (tmp_path / "run" / "rounds.jsonl").exists()
    with pytest.raises(raysim.ConfigError, match=words):
        raysim.check(tiny(callbacks={name: {}}))


def test_mlflow_gets_no_colon_in_a_name(kept: dict[str, Any], tiny: Any, tmp_path: Path) -> None:
    """Some versions take letters, digits and _ - . / and spaces alone."""
    named = {"callbacks": {"mlflow": {}}, "methods": {"probes:Observer": {}}}
    raysim.run(tiny(logging__tensorboard=False), named, tmp_path / "run", True)
    assert all(re.fullmatch(r"[\w./ -]+", name) for name in [*kept["params"], *kept["metrics"]])
    assert any(name.startswith("methods.probes_Observer") for name in kept["params"])
