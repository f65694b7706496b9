"""Seconds per round on two nodes compared with one, with the same total number of CPUs and the same hosts.

    python benchmarks/nodes.py [--rounds N] [--repeats N] [--settings N ...] [--workers KIND]

Both clusters run on this machine's loopback interface (ray.cluster_utils). This measures the cost of moving the model
and the sums from one object store to another, without that of a network. Each node's store has 1 GiB, so that nothing
is spilled. The two alternate, so that other load on the machine affects both. The table has medians and the range of
the ratios over the repeats. The clients of ResNet-18 do not train, which leaves the transfer: 45 MB down and 90 MB up
per host. Uses MNIST if $RAYSIM_DATA contains it, else noise of the same shape.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from clusters import cluster
from rich.console import Console
from rich.table import Table
from timing import add_workers
from workload import saved, with_raysim

from raysim.system.capacity import this_machine


@dataclass(frozen=True)
class Setting:
    model: str
    clients: int
    samples: int
    clients_per_actor: int | str
    trains: bool = True


SETTINGS = [
    Setting("mnist_cnn", 10, 600, 1),
    Setting("mnist_cnn", 10, 600, "auto"),
    Setting("mnist_cnn", 100, 60, "auto"),
    Setting("resnet18", 4, 60, "auto", trains=False),
]


@contextmanager
def cluster_of(nodes: int, cpus: int) -> Iterator[str]:
    """Start a cluster of nodes with this many CPUs each, and yield its address."""
    with cluster(cpus) as there:
        for _ in range(nodes - 1):
            there.add(cpus)
        yield there.address


def seconds(setting: Setting, address: str, workers: str, data: Path, rounds: int) -> list[float]:
    """Return the seconds of the rounds of one run."""
    with tempfile.TemporaryDirectory() as folder:
        clock = with_raysim(
            data,
            setting.clients,
            rounds,
            Path(folder, "run"),
            model={"name": setting.model},
            methods={} if setting.trains else {"workload:Idle": {}},
            resources={"address": address, "clients_per_actor": setting.clients_per_actor, "workers": workers},
        )
    return clock.seconds


def row(setting: Setting, turns: list[tuple[list[float], list[float]]]) -> list[str]:
    one, two = (median(second for turn in turns for second in turn[side]) for side in (0, 1))
    ratios = sorted(median(turn[1]) / median(turn[0]) for turn in turns)
    what = setting.model if setting.trains else f"{setting.model}, idle"
    size = [str(value) for value in (setting.clients, setting.samples, setting.clients_per_actor)]
    return [what, *size, f"{one:.4f}", f"{two:.4f}", f"{two / one:.3f}", f"{ratios[0]:.2f} - {ratios[-1]:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds of each run (15)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (3)")
    add_workers(parser)
    parser.add_argument("--settings", type=int, nargs="*", help="which settings, by number from 1 (all)")
    asked = parser.parse_args()
    chosen = [SETTINGS[number - 1] for number in asked.settings or range(1, len(SETTINGS) + 1)]
    half = max(1, int(this_machine().cpus) // 2)
    console = Console(width=110)
    table = Table("model", "clients", "samples", "per actor", "one node s", "two nodes s", "ratio", "range")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        addresses = [stack.enter_context(cluster_of(nodes, 2 * half // nodes)) for nodes in (1, 2)]
        for number, setting in enumerate(chosen):
            name, data = saved(folder, setting.clients * setting.samples)
            turns = []
            for _ in range(asked.repeats):
                one, two = (seconds(setting, address, asked.workers, data, asked.rounds) for address in addresses)
                turns.append((one, two))
            table.add_row(*row(setting, turns))
            console.print(f"{number + 1} of {len(chosen)} settings done", highlight=False)
    table.title = f"per round, {name}, {2 * half} CPUs in all: medians of seconds"
    console.print(table)


if __name__ == "__main__":
    main()
