"""The exact head of a federation on Ray is that of one client in this process, with all data in one task."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

import raysim

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

GRID = {"grid": 14, "bound": 16.0}
DATA = {"name": "synthetic", "classes": 4, "shape": [6], "train": 60, "test": 8}
RUN: dict[str, Any] = {
    "dataset": DATA,
    "scenario": {"kind": "class_incremental", "tasks": 1},
    "model": {"name": "mlp", "hidden": [], "random_features": 30},
    "methods": {"analytic": GRID},
    "training.rounds_per_task": 1,
}
ROUNDS = {
    "scenario.tasks": 2,
    "partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 1},
    "clients": {"count": 4, "dropout": 0.5},
    "participation": {"count": 2},
    "resources.clients_per_actor": 2,
}
FEDBUFF = {
    "scenario": {"kind": "class_incremental", "tasks": 2, "order": "per_client"},
    "clients.count": 3,
    "training.rounds_per_task": 3,
    "schedule": {
        "kind": "asynchronous",
        "concurrency": 2,
        "buffer_size": 1,
        "max_staleness": 0,
        "speeds": {"kind": "log_normal"},
    },
    "methods": {"stsa": {**GRID, "train_first": False}},
}


def head(run: raysim.Result) -> str:
    state = torch.load(run.directory / "model.pt", weights_only=True)
    (weight,) = (value for name, value in state.items() if name.endswith("2.weight"))
    return sha256(weight.numpy().tobytes()).hexdigest()


def test_federations_on_ray_have_the_head_of_one_machine(small: dict[str, Any], tmp_path: Path) -> None:
    """Two actors with two clients each, of which clients drop out; and FedBuff, which discards late updates."""
    alone = raysim.run(small, RUN | {"clients.count": 1}, out=tmp_path / "alone", local=True)
    for name, keys in (("rounds", ROUNDS), ("fedbuff", FEDBUFF)):
        run = raysim.run(small, RUN | keys, out=tmp_path / name)
        assert head(run) == head(alone), name
