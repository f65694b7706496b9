"""What `raysim check` prints is what a run then has: actors, steps and bytes exactly, memory within a quarter."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from raysim.config import load
from raysim.launch import check

pytestmark = pytest.mark.ray

LIMIT = 180  # seconds until a hang is a hang
IMAGES = {"name": "synthetic", "classes": 10, "shape": [1, 28, 28], "train": 1200, "test": 400}
COLOURS = {"name": "synthetic", "classes": 10, "shape": [3, 32, 32], "train": 64, "test": 20}
RUNS: dict[str, dict[str, Any]] = {
    "one client per actor": {
        "methods": {"scaffold": {}, "fed_a_gem": {}},
        "participation": {"count": 3},
        "training": {"rounds_per_task": 10, "batch_size": 8, "optimizer": {"lr": 0.1}},
    },
    "a CNN with a memory, packed, FedBuff": {
        "schedule": {"kind": "asynchronous", "concurrency": 4, "buffer_size": 2, "speeds": {"kind": "log_normal"}},
        "dataset": IMAGES,
        "model": {"name": "mnist_cnn"},
        "methods": {"der": {}},
        "clients": {"count": 6},
        "resources": {"clients_per_actor": "auto"},
    },
    "a ResNet-18 with a variate for each client": {
        "dataset": COLOURS,
        "scenario": {"kind": "class_incremental", "tasks": 1},
        "model": {"name": "resnet18"},
        "methods": {"scaffold": {}},
        "training": {"rounds_per_task": 1, "batch_size": 8, "optimizer": {"lr": 0.01}},
        "resources": {"clients_per_actor": 3},
    },
}
SOAKED = ("a ResNet-18 with a variate for each client", "a CNN with a memory, packed, FedBuff")


def fields(path: str) -> dict[str, int]:
    """The sizes that a file under /proc names, in bytes."""
    return {
        name: int(size) * 1024
        for name, size in re.findall(r"^(\w+):\s+(\d+) kB$", Path(path).read_text(), re.MULTILINE)
    }


def hosts_and_memory(run: psutil.Process) -> tuple[int, int]:
    """Return how many host actors a run has now, and the bytes that it takes as if nothing else ran on the machine.

    The summary's PSS counts a library's page in part if processes of other runs have mapped it, as other tests do. Here
    such a page counts in full: anonymous and shared memory is the run's own, and of files each program maps its
    libraries once, as many as the process that has mapped the most.
    """
    hosts, own, files = 0, 0, dict[str, int]()
    for process in [run, *run.children(recursive=True)]:
        try:
            name, program = (process.cmdline() or [""])[0], process.exe()
            proportional, whole = fields(f"/proc/{process.pid}/smaps_rollup"), fields(f"/proc/{process.pid}/status")
            own += proportional["Pss_Anon"] + proportional["Pss_Shmem"]
            files[program] = max(files.get(program, 0), whole["RssFile"])
        except (psutil.Error, OSError, KeyError):  # it has ended
            continue
        hosts += name.startswith("ray::Host")
    return hosts, own + sum(files.values())


def watch(run: psutil.Popen) -> tuple[int, int]:
    """Wait for the end of a run, and return how many hosts and bytes it had at most at a time."""
    limit, hosts, memory = time.monotonic() + LIMIT, 0, 0
    while run.poll() is None:
        assert time.monotonic() < limit, "waited too long"
        now = hosts_and_memory(run)
        hosts, memory = max(hosts, now[0]), max(memory, now[1])
        time.sleep(0.2)
    return hosts, memory


def number(text: str, pattern: str) -> int:
    found = re.search(pattern, text)
    assert found, text
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=pytest.mark.soak) if what in SOAKED else what for what in RUNS]
)
def test_a_run_has_what_was_foreseen(what: str, small: dict[str, Any], tmp_path: Path) -> None:
    source = {**small, "logging": {"tensorboard": False}, **RUNS[what]}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(source))
    said = dict(check.estimate_run(load(tmp_path / "config.yaml")))
    command = [sys.executable, "-m", "raysim", "run", tmp_path / "config.yaml", "--out", tmp_path / "out", "--quiet"]
    run = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        most, memory = watch(run)
    finally:
        if run.poll() is None:
            run.terminate()
        _, errors = run.communicate()
    assert (run.returncode, errors) == (0, b"")

    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    count = r"([\d,]+)"
    assert summary["actors"] == 1 + most == 1 + number(said["actors"], rf"1 coordinator and {count} host")
    assert summary["rounds"] == number(said["rounds"], rf"^{count} with")
    assert summary["updates"] == number(said["rounds"], rf"with {count} client updates")
    assert summary["steps"] == number(said["steps"], rf"^{count} gradient")
    assert summary["bytes_up"] == number(said["bytes up"], rf"^{count} \(")
    assert summary["bytes_down"] == number(said["bytes down"], rf"^{count} \(")
    gib = re.search(r"^about ([\d.]+) GiB", said["memory"])
    assert gib, said["memory"]
    assert float(gib[1]) * 2**30 == pytest.approx(memory, rel=0.25)
    assert 0.5 * memory < summary["peak_memory_bytes"] < 1.05 * memory  # other tests' processes share its libraries
