"""Seconds per round on two nodes against one, with as many CPUs in all and the same hosts.

    python benchmarks/nodes.py [--rounds N] [--repeats N]

Both clusters run on this machine's loopback interface (ray.cluster_utils), so this shows what it costs that the model,
the mail and the sums cross from one object store to another, not what a network adds. The two take turns, so that
whatever else the machine does falls on both. The time of a round is from one result to the next as the main process
sees them, evaluation excluded; medians. MNIST where $RAYSIM_DATA has it, else noise of its shape.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from floor import BATCH, LR, TEST, WARM_UP, Clock, images
from ray.cluster_utils import Cluster
from rich.console import Console
from rich.table import Table

import raysim
from raysim.actors.loopback import LOOPBACK, on_loopback
from raysim.resources import this_machine


@dataclass(frozen=True)
class Setting:
    clients: int
    samples: int
    clients_per_actor: int | str
    model: str


SETTINGS = [
    Setting(10, 600, 1, "mnist_cnn"),
    Setting(10, 600, "auto", "mnist_cnn"),
    Setting(100, 60, "auto", "mnist_cnn"),
    Setting(4, 32, "auto", "resnet18"),
]


@contextmanager
def cluster_of(nodes: int, cpus: int) -> Iterator[str]:
    """Start a cluster of nodes that have so many CPUs each, and give its address."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, on_loopback():  # a short path: sockets lie in it
        os.environ["RAY_TMPDIR"] = folder
        head = {"include_dashboard": False, "num_cpus": cpus, "node_ip_address": LOOPBACK}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(nodes - 1):
            cluster.add_node(num_cpus=cpus, node_ip_address=LOOPBACK)
        try:
            yield str(cluster.address)
        finally:
            cluster.shutdown()


def timed(setting: Setting, address: str, data: Path, rounds: int, out: Path) -> Clock:
    clock = Clock(rounds)
    raysim.run(
        {
            "name": "benchmark",
            "dataset": {"name": "npz", "path": str(data)},
            "scenario": {"kind": "class_incremental", "tasks": 1},
            "clients": {"count": setting.clients},
            "model": {"name": setting.model},
            "training": {"rounds_per_task": WARM_UP + rounds + 1, "batch_size": BATCH, "optimizer": {"lr": LR}},
            "resources": {"address": address, "clients_per_actor": setting.clients_per_actor},
        },
        out=out,
        display=clock,
    )
    return clock  # one round more was run: the last one waits for the evaluation at the task's end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each run that are counted (15)")
    parser.add_argument("--repeats", type=int, default=3, help="how often one node and two take turns (3)")
    parser.add_argument("--settings", type=int, nargs="*", help="which of the settings, by number from 1 (all)")
    asked = parser.parse_args()
    chosen = [SETTINGS[number - 1] for number in asked.settings or range(1, len(SETTINGS) + 1)]
    half = max(1, int(this_machine().cpus) // 2)
    console = Console(width=110)
    table = Table("model", "clients", "samples", "per actor", "one node s", "two nodes s", "ratio", "of turns")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        addresses = [stack.enter_context(cluster_of(nodes, 2 * half // nodes)) for nodes in (1, 2)]
        for number, setting in enumerate(chosen):
            name, x, y = images(setting.clients * setting.samples)
            data = Path(folder, f"{number}.npz")
            np.savez(data, x_train=x, y_train=y, x_test=x[:TEST], y_test=y[:TEST])
            turns: list[list[Clock]] = []
            for turn in range(asked.repeats):
                outs = [Path(folder, f"{number}-{turn}-{nodes}") for nodes in (1, 2)]
                turns.append(
                    [timed(setting, at, data, asked.rounds, out) for at, out in zip(addresses, outs, strict=True)]
                )
            seconds = [median([s for turn in turns for s in turn[side].seconds]) for side in (0, 1)]
            ratios = sorted(median(two.seconds) / median(one.seconds) for one, two in turns)
            table.add_row(
                setting.model,
                str(setting.clients),
                str(setting.samples),
                str(setting.clients_per_actor),
                *(f"{second:.4f}" for second in seconds),
                f"{seconds[1] / seconds[0]:.3f}",
                f"{ratios[0]:.2f} - {ratios[-1]:.2f}",
            )
            console.print(f"{number + 1} of {len(chosen)} settings done", highlight=False)
    table.title = f"per round, {name}, batch {BATCH}, {2 * half} CPUs in all: medians of seconds"
    console.print(table)


if __name__ == "__main__":
    main()
