"""Memory by number of clients, and per additional client: packed onto one host per CPU, and with one actor each.

    python benchmarks/memory.py [--repeats N] [--workers KIND]

Measures the peak of a whole run (PSS of all its processes, Ray's included: peak_memory_bytes in summary.json), with
each run in its own process. The 12,000 images and the tasks (two rotations) are the same for every number of clients.
The growth is therefore the cost of clients: stream, replay memory (DER's, with logits) and state. All participate in
both rounds. Uses MNIST if $RAYSIM_DATA contains it, else noise of the same shape.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table
from timing import add_workers
from workload import TWO_TASKS, config, saved, summary_of

from raysim.system.capacity import this_machine

SAMPLES = 12000
PACKED, APART = (10, 100, 1000, 4000), (4, 8, 16)
MIB = 2**20


def rows(table: Table, how: str, sizes: Sequence[int], found: Sequence[float]) -> None:
    """Add a row for each size, with the slope from the one before it and from the first."""
    slopes = [
        (high - low) / (many - few) for (few, many), (low, high) in zip(pairwise(sizes), pairwise(found), strict=True)
    ]
    for size, nbytes, slope in zip(sizes, found, (None, *slopes), strict=True):
        overall = None if slope is None else (nbytes - found[0]) / (size - sizes[0])
        shown = ("" if s is None else f"{s / 1024:.0f}" for s in (slope, overall))
        table.add_row(how, str(size), f"{nbytes / MIB:.0f}", *shown)
    table.add_section()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (3)")
    add_workers(parser)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        what, data = saved(folder, SAMPLES)
        cases: list[tuple[str, str | int, int]] = [("packed", "auto", n) for n in PACKED]
        cases += [("one actor each", 1, n) for n in APART]
        found: dict[tuple[str, int], list[int]] = {(how, n): [] for how, _, n in cases}
        for turn in range(asked.repeats):
            for how, per_actor, clients in cases:
                resources = {"clients_per_actor": per_actor, "workers": asked.workers}
                more = {"scenario": TWO_TASKS, "methods": {"der": {}}, "logging": {"tensorboard": False}}
                run = config(data, clients, 1, resources=resources, **more)
                out = Path(folder, f"{turn}-{per_actor}-{clients}")
                found[how, clients].append(summary_of(run, out)["peak_memory_bytes"])
    table = Table("", "clients", "peak, MiB", "KiB per further client", "since the first row")
    for how, sizes in (("packed", PACKED), ("one actor each", APART)):
        rows(table, how, sizes, [median(found[how, n]) for n in sizes])
    table.title = f"{what}, MNIST CNN, DER, {int(this_machine().cpus)} cores: medians of {asked.repeats}"
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
