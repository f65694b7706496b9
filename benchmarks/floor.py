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
import psutil
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
    """Takes the time between the rounds that count, and the CPU seconds of all processes of the run in all of them."""

    rounds: int
    last: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0
    done: int = 0

    def round_done(self) -> None:
        now = time.perf_counter()
        self.done += 1
        if self.done == WARM_UP:
            self.cpu = -cpu_seconds()
        elif WARM_UP < self.done <= WARM_UP + self.rounds:
            self.seconds.append(now - self.last)
            if self.done == WARM_UP + self.rounds:
                self.cpu = (self.cpu + cpu_seconds()) / self.rounds
        self.last = time.perf_counter()

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone):
            self.round_done()

    def say(self, text: str) -> None:
        pass


def cpu_seconds() -> float:
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)


def images(count: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Return what the images are, the images (uint8 [count, 28, 28, 1]) and their labels (int64)."""
    try:
        train = mnist(Path(os.environ.get("RAYSIM_DATA", "")), False).train
        return "MNIST", train.x[:count].reshape(count, 28, 28, 1), train.y[:count]
    except ConfigError:
        draws = np.random.default_rng(0)
        return "noise", draws.integers(0, 256, (count, 28, 28, 1), np.uint8), draws.integers(0, 10, count)


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
                batch = (x[part].float() / 255).permute(0, 3, 1, 2)  # laid out as [B, H, W, C]: a fifth faster
                loss = nn.functional.cross_entropy(net(batch), y[part])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                sums[own] += torch.nn.utils.parameters_to_vector(net.parameters()) / total
        barrier.wait()  # the sums are there


def floor(setting: Setting, x: np.ndarray, y: np.ndarray, rounds: int) -> Clock:
    """Time the rounds in bare processes, one per core."""
    clock = Clock(rounds)
    processes = int(this_machine().cpus)
    spawn = multiprocessing.get_context("spawn")
    parts = np.random.default_rng(0).permutation(len(y)).reshape(setting.clients, setting.samples)
    data = [(torch.from_numpy(x[part]), torch.from_numpy(y[part])) for part in parts]
    model = nn.utils.parameters_to_vector(MnistCnn(1, 10).parameters()).detach().share_memory_()
    sums = torch.zeros(processes, len(model)).share_memory_()
    barrier = spawn.Barrier(processes + 1)
    workers = [
        spawn.Process(
            target=floor_worker, args=(data[p::processes], setting.clients, (model, sums, p, barrier), WARM_UP + rounds)
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


def with_raysim(setting: Setting, data: Path, rounds: int, out: Path) -> Clock:
    """Time the rounds with raysim on Ray."""
    clock = Clock(rounds)
    raysim.run(
        {
            "name": "benchmark",
            "dataset": {"name": "npz", "path": str(data)},
            "scenario": {"kind": "class_incremental", "tasks": 1},
            "clients": {"count": setting.clients},
            "model": {"name": "mnist_cnn"},
            "training": {"rounds_per_task": WARM_UP + rounds + 1, "batch_size": BATCH, "optimizer": {"lr": LR}},
            "resources": {"clients_per_actor": setting.clients_per_actor},
        },
        out=out,
        display=clock,
    )
    return clock  # one round more was run: the last one waits for the evaluation at the task's end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each run that are counted (15)")
    parser.add_argument("--repeats", type=int, default=3, help="how often floor and raysim take turns (3)")
    asked = parser.parse_args()
    console = Console(width=110)
    table = Table(
        "clients",
        "samples",
        "per actor",
        "floor s",
        "raysim s",
        "ratio",
        "of turns",
        "floor CPU s",
        "raysim CPU s",
        "ratio",
    )
    with tempfile.TemporaryDirectory() as folder, own_cluster(this_machine()):
        for number, setting in enumerate(SETTINGS):
            name, x, y = images(setting.clients * setting.samples)
            data = Path(folder, f"{number}.npz")
            np.savez(data, x_train=x, y_train=y, x_test=x[:TEST], y_test=y[:TEST])
            turns = []
            for turn in range(asked.repeats):
                bare = floor(setting, x, y, asked.rounds)
                framed = with_raysim(setting, data, asked.rounds, Path(folder, f"{number}-{turn}"))
                turns.append((bare, framed))
            seconds = [median([s for turn in turns for s in turn[side].seconds]) for side in (0, 1)]
            cpu = [median(turn[side].cpu for turn in turns) for side in (0, 1)]
            ratios = sorted(median(framed.seconds) / median(bare.seconds) for bare, framed in turns)
            table.add_row(
                str(setting.clients),
                str(setting.samples),
                str(setting.clients_per_actor),
                *(f"{second:.4f}" for second in seconds),
                f"{seconds[1] / seconds[0]:.3f}",
                f"{ratios[0]:.2f} - {ratios[-1]:.2f}",
                *(f"{second:.4f}" for second in cpu),
                f"{cpu[1] / cpu[0]:.3f}",
            )
            console.print(f"{number + 1} of {len(SETTINGS)} settings done", highlight=False)
    table.title = f"per round, {name}, batch {BATCH}, {int(this_machine().cpus)} cores: medians of seconds, CPU seconds"
    console.print(table)


if __name__ == "__main__":
    main()
