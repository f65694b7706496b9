"""The examples run, and the guide to writing a method shows a real one."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest
from pages import ROOT, blocks
from PIL import Image
from small import small

import raysim
from raysim.config import load

TINY = {
    "name": "tiny",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 36, "test": 20},
    "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"},
    "clients": {"count": 3},
    "model": {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True},
    "training": {"rounds_per_task": 2, "batch_size": 4, "optimizer": {"lr": 0.1}},
    "logging": {"tensorboard": False},
}


@pytest.fixture
def example(workplace: Path):
    def load_example(name: str) -> ModuleType:
        return importlib.import_module(f"examples.{name}")

    return load_example


def test_running_from_python_compares_methods(example) -> None:
    script = example("run_from_python")
    results = script.compare(small(load(script.CONFIG)))
    assert list(results) == list(script.METHODS)
    assert [run.seed for run in results["ER"]] == list(script.SEEDS)
    lines = script.table(results).splitlines()
    assert len(lines) == 1 + len(script.METHODS)
    shown = re.search(r"([\d.]+)%", lines[1])
    accuracies = [run.evaluation["class_il"]["average_accuracy"] for run in results["FedAvg"]]
    assert shown is not None
    assert float(shown[1]) == pytest.approx(50 * sum(accuracies), abs=0.051)  # the mean of two, in %


def test_plotting_a_run_draws_a_picture(example, tmp_path: Path) -> None:
    raysim.run(TINY, {"evaluation.every_rounds": 1}, out=tmp_path / "run", local=True)
    picture = example("plot").plot(tmp_path / "run", tmp_path / "run.png")
    with Image.open(picture) as image:
        assert image.size == (1300, 400)


def test_the_guide_shows_the_methods_as_they_are() -> None:
    sources = [(ROOT / "raysim" / "algorithms" / f"{name}.py").read_text(encoding="utf-8") for name in ("ewc", "lwf")]
    shown = [block for block in blocks(ROOT / "docs" / "writing_a_method.md", "python") if "import raysim" not in block]
    assert [sum(block in source for block in shown) for source in sources] == [6, 3]
    assert len(shown) == 9
