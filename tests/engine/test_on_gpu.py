"""On a GPU: data and model are there, no step waits for it, and a run has the same bits again, as graphs too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import raysim
from raysim.config import Config
from raysim.engine import hosted_client
from raysim.engine.runner import LocalRunner
from raysim.federation.federation import build_federation
from raysim.models.graphs import Graphs
from raysim.system.errors import RunError

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="no GPU here that torch can use; a CPU shows the same code in test_no_waiting.py and test_graphs.py",
)

METHODS: list[dict[str, Any]] = [
    {},
    {"scaffold": {}, "er": {}},
    {"der": {"beta": 0.5}, "fed_a_gem": {}},
    {"a_gem": {}, "special_c": {"prox_every": "step"}},
    {"scaffold": {}, "quantize": {"vectors": "all", "feedback": True}},
    {"top_k": {}},
]


@pytest.fixture
def config(tiny: Callable[..., Config]) -> Callable[..., Config]:
    def made(methods: dict[str, Any], **others: Any) -> Config:
        images = {"name": "synthetic", "classes": 4, "shape": [1, 28, 28], "train": 48, "test": 20}
        remembers = {"memory": {"capacity": 5}} if methods and "ewc" not in methods else {}
        blocks = {"model": {"name": "mnist_cnn"}, "resources": {"gpus_per_actor": 1}, **remembers, **others}
        return tiny(dataset={**images, "augment": ["crop"]}, methods=methods, **blocks)

    return made


def test_data_and_model_are_on_the_device(config: Callable[..., Config], quiet_torch: None) -> None:
    made = config({})
    host = LocalRunner(made, build_federation(made)).host
    assert host.model.parameters.is_cuda
    assert host.clients[0].data.x.is_cuda
    assert host.clients[0].data.fetch(torch.arange(3, device="cuda"), 0).is_cuda


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
@pytest.mark.parametrize("methods", METHODS, ids=" ".join)
def test_no_step_waits_and_the_bits_are_the_same_again(
    methods: dict[str, Any], config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = hosted_client.run_local_loop

    @contextmanager
    def no_waiting() -> Iterator[None]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def watched(*given: Any) -> Any:
        with no_waiting():
            return original(*given)

    first = raysim.run(config(methods), out=tmp_path / "first", local=True)
    monkeypatch.setattr(hosted_client, "run_local_loop", watched)
    again = raysim.run(config(methods), out=tmp_path / "again", local=True)
    assert again.model_sha256 == first.model_sha256


class Dropping(nn.Module):
    """A model with all that a graph must get right: BatchNorm's statistics and counts, and masks drawn on the GPU."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        convolution = [nn.Conv2d(shape[0], 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU()]
        self.layers = nn.Sequential(*convolution, nn.Dropout(0.5), nn.Flatten(), nn.Linear(8 * 13 * 13, classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


class Asking(nn.Linear):
    """A model that asks the GPU for a value, which a graph cannot."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(28 * 28, classes)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)) * float(x.max() > -1)


@pytest.mark.parametrize("model", ["mnist_cnn", "resnet18", "test_on_gpu:Dropping"])
@pytest.mark.parametrize("methods", [*METHODS, {"c_flag": {}}, {"ewc": {}}], ids=" ".join)
def test_graphs_give_the_same_bits(
    methods: dict[str, Any], model: str, config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """16 samples of each of three clients are batches of 7, 7 and 2; three epochs, two rounds, two tasks."""
    captured: list[torch.Size] = []
    original = Graphs._capture

    def noted(graphs: Graphs, depth: int, x: Tensor) -> Callable[[Tensor], Tensor]:
        captured.append(x.shape)
        return original(graphs, depth, x)

    monkeypatch.setattr(Graphs, "_capture", noted)
    training = {"rounds_per_task": 2, "local_epochs": 3, "batch_size": 7, "optimizer": {"lr": 0.01}}
    made = config(methods, model={"name": model}, training=training)
    plain = raysim.run(made, out=tmp_path / "plain", local=True)
    assert captured == []
    resources = {"gpus_per_actor": 1, "cuda_graphs": True}
    graphs = raysim.run(
        config(methods, model={"name": model}, training=training, resources=resources), out=tmp_path / "g", local=True
    )
    assert len(captured) > 1
    assert graphs.model_sha256 == plain.model_sha256


@pytest.mark.parametrize("model", ["mnist_cnn", "resnet18", "test_on_gpu:Dropping"])
@pytest.mark.parametrize("methods", [{}, {"fedprox": {}}, {"scaffold": {}}, {"er": {}, "fed_a_gem": {}}], ids=" ".join)
def test_clients_together_have_the_same_bits_on_any_hosts_and_as_graphs(
    methods: dict[str, Any], model: str, config: Callable[..., Config], simulate: Callable[..., Any]
) -> None:
    """Three clients in blocks of two: a host of one has a stand-in. 16 samples each, in batches of 7, 7 and 2."""
    training = {
        "rounds_per_task": 2,
        "local_epochs": 3,
        "batch_size": 7,
        "optimizer": {"lr": 0.01},
        "clip_norm": 0.5,
        "vectorise": 2,
    }
    made = config(methods, model={"name": model}, training=training)
    graphs = made.model_copy(update={"resources": made.resources.model_copy(update={"cuda_graphs": True})})
    together = simulate(made, places=[[0, 1, 2]]).sha256
    assert simulate(made, places=[[1], [0, 2]]).sha256 == together
    assert simulate(graphs, places=[[0, 1, 2]]).sha256 == together


def test_a_model_that_no_graph_can_hold_is_refused_in_one_line(config: Callable[..., Config], tmp_path: Path) -> None:
    resources = {"gpus_per_actor": 1, "cuda_graphs": True}
    training = {"rounds_per_task": 2, "local_epochs": 3, "batch_size": 7}
    made = config({}, model={"name": "test_on_gpu:Asking"}, training=training, resources=resources)
    with pytest.raises(RunError, match=r"^resources\.cuda_graphs: a pass of the model cannot be a graph"):
        raysim.run(made, out=tmp_path / "run", local=True)
