"""Seconds that a raysim command takes in addition to its rounds, compared with starting torch and Ray alone.

    python benchmarks/startup.py [--repeats N] [--workers KIND]

Each command is its own process, and all alternate; figures are medians. raysim's are of the whole command
(scikit-learn's digits, an MLP) minus its one round: imports, starting Ray and the hosts, evaluating the untrained
model, stopping Ray. The ratio is to a bare process that imports torch, starts Ray and exits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from timing import add_workers

from raysim.system.capacity import this_machine

CONFIG = """
name: startup
dataset: {name: digits}
scenario: {kind: class_incremental, tasks: 1}
clients: {count: 24}
model: {name: mlp, hidden: [64]}
training: {rounds_per_task: 1}
logging: {tensorboard: false}
"""
TORCH = "import torch"
RAY = """
import torch, ray, logging
ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
"""
WAYS: dict[str, list[str]] = {
    "raysim list methods": ["list"],
    "raysim run --local": ["--local"],
    "raysim run, packed": ["resources.clients_per_actor=auto"],
    "raysim run, 8 actors": ["clients.count=8"],
    "raysim run, 24 actors": [],
}
BARE = {"import torch": TORCH, "import torch, start Ray": RAY}


def seconds(command: list[str]) -> float:
    """Return the seconds that a process takes."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def start(way: list[str], config: Path, out: Path) -> float:
    """Return the seconds that raysim takes in addition to its round."""
    if way == ["list"]:
        return seconds(["-m", "raysim", "list", "methods"])
    whole = seconds(["-m", "raysim", "run", str(config), *way, "--quiet", "--out", str(out)])
    summary = json.loads((out / "summary.json").read_text())
    return whole - float(summary["seconds"]) + float(summary["seconds_starting"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="repetitions (5)")
    add_workers(parser)
    asked = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in (*BARE, *WAYS)}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "startup.yaml")
        config.write_text(f"{CONFIG}resources: {{workers: {asked.workers}}}\n", encoding="utf-8")
        for turn in range(asked.repeats):
            for name, code in BARE.items():
                found[name].append(seconds(["-c", code]))
            for number, (name, way) in enumerate(WAYS.items()):
                found[name].append(start(way, config, Path(folder, f"{turn}-{number}")))
    table = Table("", "seconds", "x torch and Ray", title=f"{int(this_machine().cpus)} cores: medians")
    for name, turns in found.items():
        ratio = median(own / bare for own, bare in zip(turns, found["import torch, start Ray"], strict=True))
        table.add_row(name, f"{median(turns):.2f}", f"{ratio:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
