"""A thousand clients on one machine: configs/scale, with noise for MNIST's images and one round a task."""

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import raysim

pytestmark = pytest.mark.ray

SCALE = Path(__file__).parents[2] / "configs" / "scale"
LIMIT = 300  # seconds until a hang is a hang
GIB = 2**30
NOISE = "dataset={name: synthetic, classes: 10, shape: [1, 28, 28], train: 5000, test: 200}"
SHORT = [NOISE, "scenario.tasks=2", "training.rounds_per_task=1", "logging.tensorboard=false"]


@dataclass
class Ended:
    """A run's summary, and the most memory that its processes had each for itself, in bytes, all together."""

    summary: Any
    private: int


def ended(out: Path, config: str, *overrides: str) -> Ended:
    command = [sys.executable, "-m", "raysim", "run", SCALE / config, "--out", out, "--quiet", *SHORT, *overrides]
    most, limit = 0, time.monotonic() + LIMIT
    with psutil.Popen(command) as run:
        while run.poll() is None:
            assert time.monotonic() < limit, "waited too long"
            most = max(most, private(run))
            time.sleep(0.3)
    assert run.returncode == 0
    return Ended(json.loads((out / "summary.json").read_text()), most)


def private(run: psutil.Process) -> int:
    """What no other test's processes share, so that it hangs on none of them."""
    total = 0
    for process in (run, *run.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended
            total += process.memory_full_info().uss
    return total


@pytest.mark.soak
def test_a_thousand_clients_take_less_than_six_gib_and_each_less_than_100_kb(tmp_path: Path) -> None:
    """Full participation: the same samples, of which a client has 5, or 500. Both have the same hosts."""
    few, many = (ended(tmp_path / str(n), "thousand_full.yaml", f"clients.count={n}") for n in (10, 1000))
    assert (few.summary["status"], many.summary["status"], many.summary["updates"]) == ("done", "done", 2000)
    assert few.summary["actors"] == many.summary["actors"] < 10
    assert many.summary["peak_memory_bytes"] < 6 * GIB
    assert many.private > GIB // 2  # it is found
    assert many.private - few.private < 990 * 100_000


@pytest.mark.usefixtures("cluster")
def test_a_thousand_clients_take_part_now_and_then(tmp_path: Path) -> None:
    found = raysim.run(SCALE / "thousand_partial.yaml", SHORT, out=tmp_path / "run")
    assert (found.status, found.updates) == ("done", 200)
    assert found.peak_memory_bytes < 6 * GIB
