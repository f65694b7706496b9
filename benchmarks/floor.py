"""Seconds per round of raysim on Ray, compared with the same client updates in bare processes (the floor).

    python benchmarks/floor.py [--samples N] [--rounds N] [--repeats N] [--workers KIND]

10, 100 and 1,000 clients share the same samples. The floor is one bare process per core. It trains its share of the
clients in plain torch, on images in its memory, and adds to a vector in shared memory. Both perform the same steps on
the same data. Floor and raysim alternate, so that other load on the machine affects both. A round lasts from one result
to the next in the main process, without evaluation. The table has medians, and the CPU seconds of all processes. Uses
MNIST if $RAYSIM_DATA contains it, else noise of the same shape.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from timing import NICENESS, WARM_UP, Clock, add_workers
from torch import multiprocessing, nn
from workload import BATCH, LR, images, saved, with_raysim

from raysim.actors.starting import own_cluster
from raysim.models.mnist_cnn import MnistCnn
from raysim.system.capacity import this_machine


@dataclass(frozen=True)
class Setting:
    clients: int
    clients_per_actor: int | str


SETTINGS = [Setting(10, 1), Setting(10, "auto"), Setting(100, "auto"), Setting(1000, "auto")]


def floor_worker(clients: list[tuple[torch.Tensor, torch.Tensor]], total: int, shared: Any, rounds: int) -> None:
    os.nice(NICENESS)
    torch.set_num_threads(1)
    model, sums, own, barrier = shared
    net = MnistCnn(1, 10)
    net.train()
    torch.nn.utils.vector_to_parameters(model, net.parameters())
    for _ in range(rounds):
        barrier.wait()  # the model is ready
        sums[own].zero_()
        for x, y in clients:
            torch.nn.utils.vector_to_parameters(model.clone(), net.parameters())
            optimizer = torch.optim.SGD(net.parameters(), lr=LR)
            for part in torch.randperm(len(y)).split(BATCH):
                batch = (x[part].float() / 255).permute(0, 3, 1, 2)  # memory format [B, H, W, C]: a fifth faster
                loss = nn.functional.cross_entropy(net(batch), y[part])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                sums[own] += torch.nn.utils.parameters_to_vector(net.parameters()) / total
        barrier.wait()  # the sums are ready


def floor(clients: int, samples: int, rounds: int) -> Clock:
    """Time the rounds in bare processes, one per core."""
    clock = Clock(rounds)
    _, x, y = images(samples)
    processes = int(this_machine().cpus)
    spawn = multiprocessing.get_context("spawn")
    parts = np.random.default_rng(0).permutation(samples).reshape(clients, -1)
    data = [(torch.from_numpy(x[part]), torch.from_numpy(y[part])) for part in parts]
    model = nn.utils.parameters_to_vector(MnistCnn(1, 10).parameters()).detach().share_memory_()
    sums = torch.zeros(processes, len(model)).share_memory_()
    barrier = spawn.Barrier(processes + 1)
    workers = [
        spawn.Process(
            target=floor_worker, args=(data[p::processes], clients, (model, sums, p, barrier), WARM_UP + rounds)
        )
        for p in range(processes)
    ]
    for worker in workers:
        worker.start()
    for _ in range(WARM_UP + rounds):
        barrier.wait()
        barrier.wait()
        model.copy_(sums.sum(0))
        clock.round_done()
    for worker in workers:
        worker.join()
    return clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=60000, help="over all clients; a multiple of 1000 (60000)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each run (5)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (3)")
    add_workers(parser)
    asked = parser.parse_args()
    console = Console(width=110)
    table = Table("clients", "samples", "per actor", "floor s", "raysim s", "ratio", "range", "floor CPU s", "ratio")
    with tempfile.TemporaryDirectory() as folder, own_cluster(this_machine()):
        name, data = saved(folder, asked.samples)
        for number, setting in enumerate(SETTINGS):
            turns = []
            for turn in range(asked.repeats):
                bare = floor(setting.clients, asked.samples, asked.rounds)
                resources = {"clients_per_actor": setting.clients_per_actor, "workers": asked.workers}
                out = Path(folder, f"{number}-{turn}")
                turns.append((bare, with_raysim(data, setting.clients, asked.rounds, out, resources=resources)))
            seconds = [median([s for turn in turns for s in turn[side].seconds]) for side in (0, 1)]
            cpu = [median(turn[side].cpu for turn in turns) for side in (0, 1)]
            ratios = sorted(median(framed.seconds) / median(bare.seconds) for bare, framed in turns)
            table.add_row(
                str(setting.clients),
                str(asked.samples // setting.clients),
                str(setting.clients_per_actor),
                *(f"{second:.4f}" for second in seconds),
                f"{median(ratios):.3f}",
                f"{ratios[0]:.2f} - {ratios[-1]:.2f}",
                f"{cpu[0]:.4f}",
                f"{cpu[1] / cpu[0]:.3f}",
            )
            console.print(f"{number + 1} of {len(SETTINGS)} settings done", highlight=False)
    table.title = f"per round, {name}, batch {BATCH}, {int(this_machine().cpus)} cores: medians of seconds, CPU seconds"
    console.print(table)


if __name__ == "__main__":
    main()
