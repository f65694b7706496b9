"""The trackers, with small stand-ins for their packages: what they receive, and when."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import raysim


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
        Store.kept = {"uri": uri, "experiments": {}, "params": {}, "metrics": {}, "tags": {}, "ended": []}

    def get_experiment_by_name(self, name: str) -> Any:
        return self.kept["experiments"].get(name)

    def create_experiment(self, name: str) -> str:
        self.kept["experiments"][name] = SimpleNamespace(experiment_id="7")
        return "7"

    def create_run(self, experiment: str, run_name: str) -> Any:
        assert experiment == "7"
        self.kept["name"] = run_name
        return SimpleNamespace(info=SimpleNamespace(run_id="r"))

    def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
        self.kept["params"] |= dict(params)
        for key, value, _, step in metrics:
            self.log_metric(run, key, value, step)

    def log_metric(self, run: str, key: str, value: float, step: int = 0) -> None:
        assert math.isfinite(value)
        self.kept["metrics"].setdefault(key, []).append((step, value))

    def set_tag(self, run: str, key: str, value: str) -> None:
        self.kept["tags"][key] = value

    def set_terminated(self, run: str, status: str) -> None:
        self.kept["ended"].append(status)


def test_mlflow(stand_in: Any, tiny: Any, tmp_path: Path) -> None:
    stand_in("mlflow", MlflowClient=Store)
    stand_in("mlflow.entities", Metric=lambda *fields: fields, Param=lambda *fields: fields)
    named = {"callbacks": {"mlflow": {"uri": "sqlite:///x.db"}}}
    result = raysim.run(tiny(logging__tensorboard=False), named, tmp_path / "run", True)
    kept = Store.kept
    assert (kept["uri"], kept["name"], kept["ended"]) == ("sqlite:///x.db", "tiny-0", ["FINISHED"])
    assert kept["params"]["training.optimizer.lr"] == "0.1"
    assert [step for step, _ in kept["metrics"]["loss"]] == [1, 2, 3, 4]
    found = accuracies(tmp_path / "run")
    assert kept["metrics"]["domain_il/task_2"] == [(round, row[1]) for round, row in found.items()]
    average = result.evaluation["domain_il"]["average_accuracy"]
    assert kept["metrics"]["domain_il/average_accuracy"] == [(0, average)]


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
