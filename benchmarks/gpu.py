"""Throughput on one GPU by number of processes, kernel by kernel and with CUDA graphs.

    python benchmarks/gpu.py [--samples N] [--rounds N] [--repeats N]

The clients of each row share one GPU. They are distributed over 1, 4 or 8 host processes, and each process requests its
share of the GPU. Rows have `resources.cuda_graphs` or not. The total number of samples is the same in all rows, which
alternate. Figures are medians. All rows with as many clients must end with the same bits. Without a GPU, this prints a
message and exits. Uses MNIST if $RAYSIM_DATA contains it, else noise of the same shape.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import product
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table
from workload import BATCH, saved, with_raysim

from raysim.actors.starting import own_cluster
from raysim.system.capacity import this_machine

CLIENTS, PROCESSES = (8, 512), (1, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=30720, help="over all clients; a multiple of 512 (30720)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each run (5)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (3)")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing to measure")
        return
    ways = list(product(CLIENTS, PROCESSES, (False, True)))
    found: dict[tuple[int, int, bool], list[float]] = {way: [] for way in ways}
    bits: dict[int, set[str | None]] = {clients: set() for clients in CLIENTS}
    with tempfile.TemporaryDirectory() as folder, own_cluster(this_machine()):
        name, data = saved(folder, asked.samples)
        for turn in range(asked.repeats):
            for clients, processes, graphs in ways:
                share = {"clients_per_actor": clients // processes, "gpus_per_actor": 1 / processes}
                out = Path(folder, f"{turn}-{clients}-{processes}-{graphs}")
                run = with_raysim(data, clients, asked.rounds, out, resources={**share, "cuda_graphs": graphs})
                found[clients, processes, graphs] += run.seconds
                bits[clients].add(run.sha256)
    table = Table("clients on the GPU", "processes", "s per round", "x one process", "with graphs", "x without")
    for clients, processes in product(CLIENTS, PROCESSES):
        alone, plain, graphed = (
            median(found[way]) for way in ((clients, 1, False), (clients, processes, False), (clients, processes, True))
        )
        gain = f"{plain / graphed:.2f}"
        table.add_row(str(clients), str(processes), f"{plain:.4f}", f"{alone / plain:.2f}", f"{graphed:.4f}", gain)
    table.title = f"{torch.cuda.get_device_name()}, {name}, MNIST CNN, batch {BATCH}: medians"
    Console(width=100).print(table)
    same = all(len(found) == 1 for found in bits.values())
    print("the same bits in all rows of as many clients" if same else f"THE BITS DIFFER: {bits}")


if __name__ == "__main__":
    main()
