"""What `raysim check` foresees is what a run then has: actors, bytes and steps exactly, memory within a quarter."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from raysim.capacity import this_machine
from raysim.config import load
from raysim.demand import demand
from raysim.federation import build_federation
from raysim.models.building import check_model
from raysim.rehearsal import rehearse
from raysim.resources import place

pytestmark = pytest.mark.ray

LIMIT = 120  # seconds until a hang is a hang


def hosts(run: psutil.Process) -> int:
    """The host actors among a run's processes."""
    names = []
    for process in run.children(recursive=True):
        try:
            names.append(process.cmdline()[0])
        except (psutil.Error, IndexError):  # it has ended
            continue
    return sum(name.startswith("ray::Host") for name in names)


def test_a_run_has_what_was_foreseen(small: dict[str, Any], tmp_path: Path) -> None:
    methods = {"scaffold": {}, "fed_a_gem": {}}
    source = {**small, "training": {**small["training"], "rounds_per_task": 30, "optimizer": {"lr": 0.1}}}
    source |= {"methods": methods, "participation": {"count": 3}, "logging": {"tensorboard": False}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(source))
    config = load(tmp_path / "config.yaml")
    federation = build_federation(config)
    before = rehearse(config, federation, check_model(config, federation.shape, federation.classes))
    placement = place(config, this_machine(), demand(config, federation))

    command = [sys.executable, "-m", "raysim", "run", tmp_path / "config.yaml", "--out", tmp_path / "out", "--quiet"]
    run = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        limit, most = time.monotonic() + LIMIT, 0
        while run.poll() is None:
            assert time.monotonic() < limit, "waited too long"
            most = max(most, hosts(run))
            time.sleep(0.2)
    finally:
        if run.poll() is None:
            run.terminate()
        _, errors = run.communicate()
    assert (run.returncode, errors) == (0, b"")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert most == placement.actors == 4
    foreseen = (before.rounds, before.updates, before.steps, before.bytes_up, before.bytes_down)
    assert foreseen == tuple(summary[key] for key in ("rounds", "updates", "steps", "bytes_up", "bytes_down"))
    assert placement.memory_bytes == pytest.approx(summary["peak_memory_bytes"], rel=0.25)
