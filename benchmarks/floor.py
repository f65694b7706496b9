"""Seconds per round: raysim with Ray against the floor, which is the same client updates with no framework at all.

    python benchmarks/floor.py [--rounds N] [--repeats N]

The floor is one bare process per core that trains its share of the clients with plain torch on pixels that lie in its
memory, and a vector in shared memory for the sum. Both do the same steps on the same data; floor and raysim alternate,
so that whatever else the machine does falls on both. The time of a round is from one result to the next as the main
process sees them, evaluation excluded; the table has medians. MNIST where $RAYSIM_DATA has it, else noise of its shape.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import multiprocessing, nn

import raysim
from raysim.actors.cluster import own_cluster
from raysim.data.mnist import mnist
from raysim.errors import ConfigError
from raysim.events import Event, RoundDone
from raysim.models.mnist_cnn import MnistCnn
from raysim.resources import this_machine

BATCH, LR = 32, 0.01
TEST = 100  # evaluation is not timed, so a few samples do
WARM_UP = 2  # rounds that are not counted
NICENESS = 15  # Ray's workers have it; the floor's get it too, so that other programs slow both alike


@dataclass(frozen=True)
class Setting:
    clients: int
    samples: int
    clients_per_actor: int | str


SETTINGS = [Setting(10, 600, 1), Setting(10, 600, "auto"), Setting(100, 60, "auto")]


@dataclass
class Clock:
    """Takes the time between the rounds of a run."""

    last: float = 0.0
    seconds: list[float] = field(default_factory=list)

    def take(self, event: Event) -> None:
        now = time.perf_counter()
        if isinstance(event, RoundDone):
            self.seconds.append(now - self.last)
        self.last = now

    def say(self, text: str) -> None:
        pass


def images(count: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Return what the images are, the images (uint8 [count, 1, 28, 28]) and their labels (int64)."""
    try:
        train = mnist(Path(os.environ.get("RAYSIM_DATA", "")), False).train
        return "MNIST", train.x[:count], train.y[:count]
    except ConfigError:
        draws = np.random.default_rng(0)
        return "noise", draws.integers(0, 256, (count, 1, 28, 28), np.uint8), draws.integers(0, 10, count)


def floor_worker(clients: list[tuple[torch.Tensor, torch.Tensor]], total: int, shared: Any, rounds: int) -> None:
    os.nice(NICENESS)
    torch.set_num_threads(1)
    model, sums, own, barrier = *shared[:2], shared[2], shared[3]
    net = MnistCnn(1, 10)
    net.train()
    torch.nn.utils.vector_to_parameters(model, net.parameters())
    for _ in range(rounds):
        barrier.wait()  # the model is there
        sums[own].zero_()
        for x, y in clients:
            torch.nn.utils.vector_to_parameters(model.clone(), net.parameters())
            optimizer = torch.optim.SGD(net.parameters(), lr=LR)
            for part in torch.randperm(len(y)).split(BATCH):
                loss = nn.functional.cross_entropy(net(x[part].float() / 255), y[part])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                sums[own] += torch.nn.utils.parameters_to_vector(net.parameters()) / total
        barrier.wait()  # the sums are there


def floor(setting: Setting, x: np.ndarray, y: np.ndarray, rounds: int) -> list[float]:
    """Return the seconds of each round in bare processes, one per core."""
    processes = int(this_machine().cpus)
    spawn = multiprocessing.get_context("spawn")
    parts = np.random.default_rng(0).permutation(len(y)).reshape(setting.clients, setting.samples)
    data = [(torch.from_numpy(x[part]), torch.from_numpy(y[part])) for part in parts]
    model = nn.utils.parameters_to_vector(MnistCnn(1, 10).parameters()).detach().share_memory_()
    sums = torch.zeros(processes, len(model)).share_memory_()
    barrier = spawn.Barrier(processes + 1)
    workers = [
        spawn.Process(
            target=floor_worker, args=(data[p::processes], setting.clients, (model, sums, p, barrier), rounds)
        )
        for p in range(processes)
    ]
    for worker in workers:
        worker.start()
    seconds = []
    for _ in range(rounds):
        barrier.wait()
        began = time.perf_counter()
        barrier.wait()
        model.copy_(sums.sum(0))
        seconds.append(time.perf_counter() - began)
    for worker in workers:
        worker.join()
    return seconds


def with_raysim(setting: Setting, data: Path, rounds: int, out: Path) -> list[float]:
    """Return the seconds of each round with raysim on Ray."""
    clock = Clock()
    raysim.run(
        {
            "name": "benchmark",
            "dataset": {"name": "npz", "path": str(data)},
            "scenario": {"kind": "class_incremental", "tasks": 1},
            "clients": {"count": setting.clients},
            "model": {"name": "mnist_cnn"},
            "training": {"rounds_per_task": rounds, "batch_size": BATCH, "optimizer": {"lr": LR}},
            "resources": {"clients_per_actor": setting.clients_per_actor},
        },
        out=out,
        display=clock,
    )
    return clock.seconds[:-1]  # the last one waits for the evaluation at the task's end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each run that are counted (15)")
    parser.add_argument("--repeats", type=int, default=3, help="how often floor and raysim take turns (3)")
    asked = parser.parse_args()
    rounds = asked.rounds + WARM_UP
    console = Console()
    table = Table("clients", "samples each", "clients_per_actor", "floor s", "raysim s", "ratio", "of single turns")
    with tempfile.TemporaryDirectory() as folder, own_cluster(this_machine()):
        for number, setting in enumerate(SETTINGS):
            name, x, y = images(setting.clients * setting.samples)
            data = Path(folder, f"{number}.npz")
            np.savez(data, x_train=x, y_train=y, x_test=x[:TEST], y_test=y[:TEST])
            turns = []
            for turn in range(asked.repeats):
                bare = floor(setting, x, y, rounds)[WARM_UP:]
                framed = with_raysim(setting, data, rounds + 1, Path(folder, f"{number}-{turn}"))[WARM_UP:]
                turns.append((bare, framed))
                console.print(f"{setting}: floor {median(bare):.4f} s, raysim {median(framed):.4f} s per round")
            floors, rays = (median([s for turn in turns for s in turn[side]]) for side in (0, 1))
            ratios = sorted(median(framed) / median(bare) for bare, framed in turns)
            table.add_row(
                str(setting.clients),
                str(setting.samples),
                str(setting.clients_per_actor),
                f"{floors:.4f}",
                f"{rays:.4f}",
                f"{rays / floors:.3f}",
                f"{ratios[0]:.3f} to {ratios[-1]:.3f}",
            )
    table.title = f"seconds per round on {name}, batch {BATCH}, {int(this_machine().cpus)} cores; medians"
    console.print(table)


if __name__ == "__main__":
    main()
