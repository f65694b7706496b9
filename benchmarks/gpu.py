"""Throughput on one GPU by number of processes: one process with many clients up to many processes with few.

    python benchmarks/gpu.py [--samples N] [--rounds N] [--repeats N]

The clients of each row share one GPU, distributed over 1, 2, 4, ... host processes, each of which requests its share of
it, in the same code path as on CPUs. The total number of samples is the same in all rows, which alternate; figures are
medians. Without a GPU, this prints a message and exits. Uses MNIST if $RAYSIM_DATA contains it, else noise of the same
shape.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from workload import BATCH, saved, with_raysim

from raysim.actors.cluster import own_cluster
from raysim.system.capacity import this_machine

CLIENTS, PROCESSES = (8, 64, 512), (1, 2, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=30720, help="over all clients; a multiple of 512 (30720)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each run (5)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (3)")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing to measure")
        return
    ways = [(clients, processes) for clients in CLIENTS for processes in PROCESSES if processes <= clients]
    found: dict[tuple[int, int], list[float]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder, own_cluster(this_machine()):
        name, data = saved(folder, asked.samples)
        for turn in range(asked.repeats):
            for clients, processes in ways:
                share = {"clients_per_actor": clients // processes, "gpus_per_actor": 1 / processes}
                out = Path(folder, f"{turn}-{clients}-{processes}")
                found[clients, processes] += with_raysim(data, clients, asked.rounds, out, resources=share).seconds
    table = Table("clients on the GPU", "processes", "s per round", "client updates per s", "x one process")
    for (clients, processes), seconds in found.items():
        alone = median(found[clients, 1])
        own = median(seconds)
        table.add_row(str(clients), str(processes), f"{own:.4f}", f"{clients / own:.0f}", f"{alone / own:.2f}")
    table.title = f"{torch.cuda.get_device_name()}, {name}, MNIST CNN, batch {BATCH}: medians"
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
