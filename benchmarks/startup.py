"""Seconds that a raysim command takes in addition to its rounds, compared with starting torch and Ray alone.

    python benchmarks/startup.py [--repeats N] [--workers KIND]

Each command is its own process, and all alternate. All figures are medians. A run trains an MLP on scikit-learn's
digits. Its figure is the whole command without its one round: imports, starting and stopping Ray and the hosts. The
ratio is to a bare process that imports torch, starts Ray and exits.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from timing import add_workers
from workload import command, summary_of

from raysim.system.capacity import this_machine

CONFIG: dict[str, Any] = {
    "name": "startup",
    "dataset": {"name": "digits"},
    "scenario": {"kind": "class_incremental", "tasks": 1},
    "clients": {"count": 24},
    "model": {"name": "mlp", "hidden": [64]},
    "training": {"rounds_per_task": 1},
    "logging": {"tensorboard": False},
}
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


def bare(code: str) -> float:
    """Return the seconds of a process with this code."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def start(way: list[str], workers: str, out: Path) -> float:
    """Return the seconds that raysim takes in addition to its round."""
    began = time.perf_counter()
    if way == ["list"]:
        command("list", "methods")
        return time.perf_counter() - began
    summary = summary_of(CONFIG, out, f"resources.workers={workers}", *way)
    rounds = float(summary["seconds"]) - float(summary["seconds_starting"])
    return time.perf_counter() - began - rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="repetitions (5)")
    add_workers(parser)
    asked = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in (*BARE, *WAYS)}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(asked.repeats):
            for name, code in BARE.items():
                found[name].append(bare(code))
            for number, (name, way) in enumerate(WAYS.items()):
                found[name].append(start(way, asked.workers, Path(folder, f"{turn}-{number}")))
    table = Table("", "seconds", "x torch and Ray", title=f"{int(this_machine().cpus)} cores: medians")
    for name, turns in found.items():
        ratio = median(own / alone for own, alone in zip(turns, found["import torch, start Ray"], strict=True))
        table.add_row(name, f"{median(turns):.2f}", f"{ratio:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
