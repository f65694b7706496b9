"""The examples that speak to trackers and searches, with small stand-ins for them: what they are told, and when."""

import importlib
import json
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pages import ROOT

import raysim


@pytest.fixture
def example(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports an example with a stand-in for the package that it needs."""

    def load(name: str, **parts: object) -> ModuleType:
        package = ModuleType(name)
        vars(package).update(parts)
        monkeypatch.setitem(sys.modules, name, package)
        monkeypatch.delitem(sys.modules, f"examples.with_{name}", raising=False)
        monkeypatch.delitem(sys.modules, f"examples.search_with_{name}", raising=False)
        return importlib.import_module(f"examples.{'search_' if name == 'optuna' else ''}with_{name}")

    return load


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


def test_weights_and_biases(example: Any, tiny: Any, tmp_path: Path) -> None:
    begun: list[Tracked] = []

    def init(**given: Any) -> Tracked:
        begun.append(Tracked(**given))
        return begun[-1]

    script = example("wandb", init=init)
    named = {"callbacks": {"examples.with_wandb:WeightsAndBiases": {"project": "mine"}}}
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
    assert script.WeightsAndBiases(mode="disabled").mode == "disabled"


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


def test_mlflow(example: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entities = ModuleType("mlflow.entities")
    vars(entities).update(Metric=lambda *fields: fields, Param=lambda *fields: fields)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    example("mlflow", MlflowClient=Store)
    named = {"callbacks": {"examples.with_mlflow:MLflow": {"uri": "sqlite:///x.db"}}}
    result = raysim.run(tiny(logging__tensorboard=False), named, tmp_path / "run", True)
    kept = Store.kept
    assert (kept["uri"], kept["name"], kept["ended"]) == ("sqlite:///x.db", "tiny-0", ["FINISHED"])
    assert kept["params"]["training.optimizer.lr"] == "0.1"
    assert [step for step, _ in kept["metrics"]["loss"]] == [1, 2, 3, 4]
    found = accuracies(tmp_path / "run")
    assert kept["metrics"]["domain_il/task_2"] == [(round, row[1]) for round, row in found.items()]
    average = result.evaluation["domain_il"]["average_accuracy"]
    assert kept["metrics"]["domain_il/average_accuracy"] == [(0, average)]


class Pruned(Exception):
    """A trial was ended early."""


class Trial:
    """The third of three trials is ended at its second report."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.reported: dict[int, float] = {}

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> float:
        return low * 10**self.number

    def suggest_int(self, name: str, low: int, high: int, step: int) -> int:
        return low

    def report(self, value: float, step: int) -> None:
        self.reported[step] = value

    def should_prune(self) -> bool:
        return self.number == 2 and len(self.reported) == 2


class Study:
    def __init__(self, **how: object) -> None:
        self.trials: list[Trial] = []
        self.values: list[float | None] = []

    def optimize(self, rate: Any, n_trials: int) -> None:
        for number in range(n_trials):
            self.trials.append(Trial(number))
            try:
                self.values.append(rate(self.trials[-1]))
            except Pruned:
                self.values.append(None)


def test_a_search_with_optuna_ends_bad_runs_early(example: Any) -> None:
    any_of = SimpleNamespace(MedianPruner=lambda **how: how, TPESampler=lambda **how: how)
    script = example(
        "optuna", create_study=Study, samplers=any_of, pruners=any_of, TrialPruned=Pruned, Trial=Trial, Study=Study
    )
    small = ["dataset.train_samples=100", "training.rounds_per_task=4"]
    study = script.search(3, small)
    assert [value is None for value in study.values] == [False, False, True]
    assert [[*trial.reported] for trial in study.trials] == [[2, 4, 6, 8, 10, 12], [2, 4, 6, 8, 10, 12], [2, 4]]
    assert study.values[0] == pytest.approx(study.trials[0].reported[12])  # the mean over all three tasks


def test_the_notebook_runs(workplace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its cells of code one after the other, with small runs; what a cell shows must be there."""
    cells = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text(encoding="utf-8"))["cells"]
    assert all(cell.get("outputs", []) == [] for cell in cells)
    whole = raysim.run

    def quick(config: Any, overrides: Any = (), **more: Any) -> raysim.Result:
        return whole(config, {**dict(overrides), "dataset.train_samples": 100, "training.rounds_per_task": 2}, **more)

    monkeypatch.setattr(raysim, "run", quick)
    space: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "quickstart.ipynb", "exec"), space)
    assert space["replay"].status == "done"
    assert "1-domain_il-accuracy-matrix" in space["figures"]
