"""The examples run, and the method among them keeps its word."""

import importlib
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from pages import ROOT, blocks
from PIL import Image
from small import small

import raysim
from raysim.config import load
from raysim.models.flat import FlatModel

EWC = "examples.ewc:Ewc"
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


def run(tmp_path: Path, name: str, methods: dict[str, object]) -> raysim.Result:
    return raysim.run(TINY, {"methods": methods, "scenario.tasks": 3}, out=tmp_path / name, local=True)


def test_ewc_at_strength_zero_moves_no_bit(workplace: Path, tmp_path: Path) -> None:
    fedavg, zero = run(tmp_path, "fedavg", {}), run(tmp_path, "zero", {EWC: {"strength": 0.0}})
    assert zero.model_sha256 == fedavg.model_sha256
    assert run(tmp_path, "ten", {EWC: {"strength": 10.0}}).model_sha256 != fedavg.model_sha256


def test_ewc_sends_a_vector_up_per_task_and_two_down_from_the_second_on(workplace: Path, tmp_path: Path) -> None:
    fedavg, ewc = run(tmp_path, "fedavg", {}), run(tmp_path, "ewc", {EWC: {}})
    state = torch.load(tmp_path / "fedavg" / "model.pt", weights_only=True)
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    vector = sum(4 * value.numel() for name, value in state.items() if not name.endswith(statistics))
    assert ewc.bytes_up - fedavg.bytes_up == 3 * 3 * vector  # three tasks, three clients
    # the last model comes down as well, as its Fisher is asked for at it; those before it are the next rounds' anyway
    model = fedavg.bytes_down / (6 * 3)  # six rounds
    assert ewc.bytes_down - fedavg.bytes_down == 3 * (2 * 2 * vector + model)


def test_ewcs_fisher_is_that_of_a_linear_softmax(example) -> None:
    """A linear model's gradient of one sample is (p - e_y) x' for the weights, p - e_y for the bias."""
    ewc = example("ewc").Ewc
    torch.manual_seed(0)
    model = FlatModel(torch.nn.Linear(3, 2).double())
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    client = SimpleNamespace(
        model=model,
        arrived=torch.arange(5),
        generator=lambda _: np.random.default_rng(0),
        show=lambda positions: (x[positions], y[positions]),
        cross_entropy=torch.nn.functional.cross_entropy,
    )
    term = ewc.Client("ewc", ewc(sample_size=5)).fisher(client, None)["fisher"]
    error = torch.softmax(model.module(x).detach(), 1) - torch.nn.functional.one_hot(y, 2)
    weights, bias = (error[:, :, None] * x[:, None, :]).square().mean(0), error.square().mean(0)
    torch.testing.assert_close(term.value, torch.cat([weights.reshape(-1), bias]))


def test_the_guide_shows_the_example_as_it_is() -> None:
    sources = [(ROOT / file).read_text(encoding="utf-8") for file in ("examples/ewc.py", "raysim/algorithms/lwf.py")]
    shown = [block for block in blocks(ROOT / "docs" / "writing_a_method.md", "python") if "import raysim" not in block]
    assert [sum(block in source for block in shown) for source in sources] == [5, 3]
    assert len(shown) == 8
