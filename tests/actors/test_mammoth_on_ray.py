"""A model of Mammoth at ten clients, with the command, on Ray and in one process: the same bits, also resumed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_configs import TINY

import raysim

ROOT = Path(__file__).parents[2]


def run(*given: str) -> None:
    """Run the command in the root, with the stand-in on PYTHONPATH as Mammoth's folder would be."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'docs'}"}
    command = [sys.executable, "-m", "raysim", "run", *given, "--quiet"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


@pytest.mark.ray
@pytest.mark.soak
def test_it_has_the_same_bits_on_ray_and_after_a_resume(tmp_path: Path) -> None:
    """The run is cut back to its checkpoint of round 3, in task 2, where every client has an old network."""
    more = {
        "clients": {"count": 10},
        "resources": {"clients_per_actor": 4},
        "checkpoint": {"every_rounds": 3, "keep": 9},
    }
    data = {"name": "synthetic", "classes": 4, "shape": [6], "train": 120, "test": 20}
    methods = {"examples.mammoth:Mammoth": {"model": "mammoth_stand_in:Lwf", "args": {"alpha": 0.5}}}
    (tmp_path / "tiny.yaml").write_text(json.dumps(TINY | more | {"dataset": data, "methods": methods}))
    here, there = tmp_path / "local", tmp_path / "ray"
    run(str(tmp_path / "tiny.yaml"), "--local", "--out", str(here))
    run(str(tmp_path / "tiny.yaml"), "--out", str(there))
    whole = raysim.load(here).model_sha256
    assert raysim.load(there).model_sha256 == whole
    assert (there / "checkpoints" / "000003").is_dir()
    for name in ("summary.json", "model.pt"):  # as if the process had been killed
        (there / name).unlink()
    run("--resume", "--trust", "--out", str(there))
    resumed = raysim.load(there)
    assert (resumed.model_sha256, resumed.rounds_recomputed) == (whole, 1)
