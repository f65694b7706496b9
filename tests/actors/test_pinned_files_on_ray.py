"""Files that hosts map must not change: hosts and the coordinator notice it, and the run ends in one line."""

from pathlib import Path
from typing import Any

import pytest
import torch

import raysim
from raysim.callbacks import Callback, RunView
from raysim.engine.events import RoundDone
from raysim.models.mlp import mlp
from raysim.system.errors import RunError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


class Changes(Callback):
    """Changes the last frozen number in a file after round 2, in place. The run waits for its callbacks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_round(self, run: RunView, done: RoundDone) -> None:
        content = self.path.read_bytes()
        number = torch.load(self.path, weights_only=True)["1.weight"].numpy().tobytes()[-4:]
        if done.round == 2:
            with self.path.open("r+b") as file:
                file.seek(content.index(number) + 3)
                file.write(bytes([number[3] ^ 1]))


def test_weights_that_change_during_a_run_end_it(small: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    with torch.random.fork_rng():
        torch.save(mlp((6,), 4, hidden=[12]).state_dict(), path)
    model = {"model": {"name": "mlp", "hidden": [12], "freeze": ["1.weight"], "weights": str(path)}}
    here = raysim.run(small, model, tmp_path / "here", True)
    there = raysim.run(small, {**model, "resources.clients_per_actor": 2}, tmp_path / "there")
    names = ("data", "weights", "model", "machine", "settings", "numpy")
    assert there.model_sha256 == here.model_sha256
    assert [there.versions[name] for name in names] == [here.versions[name] for name in names]
    with pytest.raises(
        RunError, match=r"^model\.weights: .*w\.pt is not the file that the run began with: found SHA-256"
    ):
        raysim.run(small, {**model, "resources.clients_per_actor": 2}, tmp_path / "changed", callbacks=[Changes(path)])
    assert raysim.load(tmp_path / "changed").rounds == 2
