"""A thousand clients on one machine: configs/scale, with noise for MNIST's images and one round a task."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ray

SCALE = Path(__file__).parents[2] / "configs" / "scale"
LIMIT = 300  # seconds until a hang is a hang
GIB = 2**30
NOISE = "dataset={name: synthetic, classes: 10, shape: [1, 28, 28], train: 20000, test: 1000}"
SHORT = [NOISE, "scenario.tasks=2", "training.rounds_per_task=1", "logging.tensorboard=false"]


def summary(out: Path, config: str, *overrides: str) -> Any:
    """What a run of its own process comes to."""
    command = [sys.executable, "-m", "raysim", "run", SCALE / config, "--out", out, "--quiet", *SHORT, *overrides]
    subprocess.run(command, check=True, timeout=LIMIT)
    return json.loads((out / "summary.json").read_text())


def test_a_thousand_clients_take_less_than_six_gib_and_each_less_than_100_kb(tmp_path: Path) -> None:
    """Full participation: the same samples, of which a client has 20, or 2,000. Both have the same hosts."""
    few, many = (summary(tmp_path / str(n), "thousand_full.yaml", f"clients.count={n}") for n in (10, 1000))
    assert (few["status"], many["status"], many["updates"]) == ("done", "done", 2000)
    assert few["actors"] == many["actors"] < 10
    assert many["peak_memory_bytes"] < 6 * GIB
    assert many["peak_memory_bytes"] - few["peak_memory_bytes"] < 990 * 100_000


def test_a_thousand_clients_take_part_now_and_then(tmp_path: Path) -> None:
    found = summary(tmp_path / "run", "thousand_partial.yaml")
    assert (found["status"], found["updates"]) == ("done", 200)
    assert found["peak_memory_bytes"] < 6 * GIB
