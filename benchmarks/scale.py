"""Ten thousand clients and more that do nothing, and twenty thousand rounds: what grows with either.

    python benchmarks/scale.py [--rounds N] [--long N]

The first table has a row for each number of clients. It has the seconds of `raysim check`, of the start and of a round
(median), and the peak of memory (PSS of all processes, Ray's included). The second is of a long run of four
clients on two hosts. It has the resident memory of its processes by name, at each tenth of its rounds. Half way the
first task ends. The driver then draws its accuracy matrix, for which it imports matplotlib (about 30 MiB, once).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.console import Console
from rich.table import Table
from workload import command, summary_of

import raysim
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay

SIZES = ((1_000, 100), (10_000, 100), (50_000, 1_000))
TIMES = 10  # that memory is looked at in the long run
MIB, GIB = 2**20, 2**30


def config(clients: int, cohort: int, rounds: int) -> dict[str, Any]:
    """Return a config of clients with two synthetic samples of each of two tasks, which they do not train on."""
    return {
        "name": "scale",
        "dataset": {"name": "synthetic", "classes": 10, "shape": [20], "train": 4 * clients, "test": 1000},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": clients},
        "participation": {"count": cohort},
        "model": {"name": "mlp", "hidden": [32]},
        "methods": {"workload:Idle": {}},
        "training": {"rounds_per_task": rounds // 2},
        "resources": {"clients_per_actor": "auto"},
    }


class Resident(RunDisplay):
    """The resident bytes of a run's processes by name, at some of its rounds."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.found: dict[int, Counter[str]] = {}

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone) and event.round % self.every == 0:
            me = psutil.Process()
            held = self.found.setdefault(event.round, Counter({"driver": me.memory_info().rss}))
            for process in me.children(recursive=True):
                held[process.name().partition(".")[0]] += process.memory_info().rss  # Ray adds what an actor does


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="rounds with many clients (40)")
    parser.add_argument("--long", type=int, default=20_000, help="rounds of the long run (20,000); 0 leaves it out")
    asked = parser.parse_args()
    table = Table("clients", "in a round", "check, s", "start, s", "a round, s", "peak, GiB")
    with tempfile.TemporaryDirectory() as folder:
        for clients, cohort in SIZES:
            file, out = Path(folder, f"{clients}.yaml"), Path(folder, str(clients))
            file.write_text(yaml.safe_dump(config(clients, cohort, asked.rounds)), encoding="utf-8")
            began = time.perf_counter()
            command("check", str(file))
            checking = time.perf_counter() - began
            said = summary_of(config(clients, cohort, asked.rounds), out)
            figures = (said["seconds_starting"], said["seconds_per_round"], said["peak_memory_bytes"] / GIB)
            table.add_row(f"{clients:,}", f"{cohort:,}", f"{checking:.1f}", *(f"{figure:.3g}" for figure in figures))
        Console(width=100).print(table)
        if asked.long:
            held = Resident(asked.long // TIMES)
            raysim.run(config(4, 4, asked.long), out=Path(folder, "long"), display=held)
            first, last = held.found[held.every], held.found[asked.long]
            growth = Table("MiB resident after round", *(f"{number:,}" for number in held.found))
            for name in sorted(last, key=lambda name: first[name] - last[name]):
                growth.add_row(name, *(f"{of[name] / MIB:.0f}" for of in held.found.values()))
            Console(width=140).print(growth)


if __name__ == "__main__":
    main()
