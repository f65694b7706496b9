"""The example of a search and the notebook, with a small stand-in for the search's package."""

import importlib
import json
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
        monkeypatch.delitem(sys.modules, f"examples.search_with_{name}", raising=False)
        return importlib.import_module(f"examples.search_with_{name}")

    return load


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
