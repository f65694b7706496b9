"""Utilization of the cores under synchronous and asynchronous schedules, with clients of unequal size, or few of many.

    python benchmarks/throughput.py [--updates N] [--repeats N] [--workers KIND]

Ten clients share 3,000 samples by Dirichlet(0.3), with one client per actor and packed; both schedules perform the same
number of client updates. And 100 of 1,000 clients of 60 samples each take part in a round. Packed clients stay on their
hosts or, under a synchronous schedule, move between them. All ways of a setting alternate. Utilization is the CPU
seconds of the run's processes divided by wall seconds and cores, from the third server update to the last. Figures are
medians. Uses MNIST if $RAYSIM_DATA contains it, else noise of the same shape.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from timing import WARM_UP, add_workers, cpu_seconds
from workload import config, saved

import raysim
from raysim.actors.starting import own_cluster
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay
from raysim.system.capacity import this_machine

TEN = {"clients.count": 10, "partition": {"kind": "dirichlet", "alpha": 0.3, "balanced": False}}
MANY = {"clients.count": 1000, "participation": {"count": 100}}
FEDBUFF = {"schedule": {"kind": "asynchronous", "concurrency": 10, "buffer_size": 10}}
PACKED = {"resources.clients_per_actor": "auto"}
STAY = PACKED | {"resources.rebalance": False}
SETTINGS: list[tuple[str, int, dict[str, dict[str, Any]]]] = [
    ("ten, one per actor", 3000, {"synchronous": TEN, "asynchronous": TEN | FEDBUFF}),
    (
        "ten, packed",
        3000,
        {
            "synchronous, clients stay": TEN | STAY,
            "synchronous, clients move": TEN | PACKED,
            "asynchronous": TEN | PACKED | FEDBUFF,
        },
    ),
    (
        "100 of 1,000, packed",
        60000,
        {"synchronous, clients stay": MANY | STAY, "synchronous, clients move": MANY | PACKED},
    ),
]


class Stretch(RunDisplay):
    """Wall and CPU seconds, and client updates, between the first server updates and the last."""

    def __init__(self, updates: int) -> None:
        self._updates = updates
        self.seconds = self.cpu = 0.0
        self.client_updates = 0

    def take(self, event: Event) -> None:
        if not isinstance(event, RoundDone):
            return
        if WARM_UP < event.round <= self._updates:
            self.client_updates += len(event.cohort)
        if event.round in (WARM_UP, self._updates):
            sign = 1 if event.round == self._updates else -1
            self.seconds += sign * time.perf_counter()
            self.cpu += sign * cpu_seconds()


def run(way: dict[str, Any], data: Path, updates: int, out: Path) -> Stretch:
    stretch = Stretch(updates)
    raysim.run(config(data, way["clients.count"], updates + 1), way, out=out, display=stretch)
    return stretch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=20, help="server updates of each run (20)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (3)")
    add_workers(parser)
    asked = parser.parse_args()
    cores = this_machine().cpus
    table = Table("clients", "schedule", "cores busy", "client updates per second")
    with tempfile.TemporaryDirectory() as folder, own_cluster(this_machine()):
        for clients, samples, ways in SETTINGS:
            Path(folder, clients).mkdir()
            name, data = saved(str(Path(folder, clients)), samples)
            found: dict[str, list[Stretch]] = {way: [] for way in ways}
            for turn in range(asked.repeats):
                for way, keys in ways.items():
                    out = Path(folder, clients, f"{way} {turn}")
                    found[way].append(run(keys | {"resources.workers": asked.workers}, data, asked.updates, out))
            for way, stretches in found.items():
                busy = median(s.cpu / s.seconds / cores for s in stretches)
                speed = median(s.client_updates / s.seconds for s in stretches)
                table.add_row(clients, way, f"{100 * busy:.0f}%", f"{speed:.1f}")
            table.add_section()
    console = Console(width=100)
    console.print(f"{name}, {cores:g} cores")
    console.print(table)


if __name__ == "__main__":
    main()
