"""Workers look for modules in the driver's folders last."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import raysim

pytestmark = pytest.mark.ray

CONFIG = {
    "name": "own",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 36, "test": 20},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 2},
    "model": {"name": "mine:model"},
    "training": {"rounds_per_task": 1, "batch_size": 4},
    "resources": {"clients_per_actor": 2, "workers": "spawned"},
    "logging": {"tensorboard": False},
}
MINE = """
from torch import nn

def model(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))
"""


def test_what_lies_in_the_drivers_folder_hides_nothing_and_is_found(tmp_path: Path) -> None:
    """Of a run that is started there: files with the names of modules that every worker imports, and one of its own."""
    for name in ("numpy", "psutil", "torch", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemError('hidden')\n")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "config.yaml").write_text(json.dumps(CONFIG))
    command = [sys.executable, "-m", "raysim", "run", "config.yaml", "--out", "out", "--quiet"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert raysim.load(tmp_path / "out").actors == 2
