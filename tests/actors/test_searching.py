"""Workers look for modules in the driver's folders last."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raysim

pytestmark = pytest.mark.ray

OWN = {"model": {"name": "mine:model"}, "resources": {"clients_per_actor": 4, "workers": "spawned"}}
MINE = """
from torch import nn

def model(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))
"""


def test_what_lies_in_the_drivers_folder_hides_nothing_and_is_found(small: dict[str, Any], tmp_path: Path) -> None:
    """Of a run that is started there: files with the names of modules that every worker imports, and one of its own."""
    for name in ("numpy", "psutil", "torch", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemError('hidden')\n")
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "config.yaml").write_text(json.dumps(small | OWN))
    command = [sys.executable, "-m", "raysim", "run", "config.yaml", "--out", "out", "--quiet"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert raysim.load(tmp_path / "out").actors == 2
