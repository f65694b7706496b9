"""On a GPU: the data and the model are there, no step waits for it, and a run has the same bits again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import raysim
from raysim.config import Config
from raysim.engine import hosted_client
from raysim.engine.runner import LocalRunner
from raysim.federation.federation import build_federation

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="no GPU here that torch can use; what a CPU shows of the same code is in test_no_waiting.py",
)

METHODS: list[dict[str, Any]] = [
    {},
    {"scaffold": {}, "er": {}},
    {"der": {"beta": 0.5}, "fed_a_gem": {}},
    {"a_gem": {}, "special_c": {"prox_every": "step"}},
]


@pytest.fixture
def config(tiny: Callable[..., Config]) -> Callable[..., Config]:
    def made(methods: dict[str, Any]) -> Config:
        images = {"name": "synthetic", "classes": 4, "shape": [1, 28, 28], "train": 48, "test": 20}
        more = {"memory": {"capacity": 5}} if methods else {}
        return tiny(
            dataset={**images, "augment": ["crop"]},
            model={"name": "mnist_cnn"},
            methods=methods,
            resources={"gpus_per_actor": 1},
            **more,
        )

    return made


def test_data_and_model_are_on_the_device(config: Callable[..., Config], quiet_torch: None) -> None:
    made = config({})
    host = LocalRunner(made, build_federation(made)).host
    assert host.model.parameters.is_cuda
    assert host._samples.x.is_cuda
    assert host._samples.fetch(torch.arange(3, device="cuda"), 0).is_cuda


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
@pytest.mark.parametrize("methods", METHODS, ids=" ".join)
def test_no_step_waits_and_the_bits_are_the_same_again(
    methods: dict[str, Any], config: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = hosted_client.train

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
    monkeypatch.setattr(hosted_client, "train", watched)
    again = raysim.run(config(methods), out=tmp_path / "again", local=True)
    assert again.model_sha256 == first.model_sha256
