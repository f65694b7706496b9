"""Seconds per round of raysim compared with Flower's simulation, both on Ray, with and without training.

    python benchmarks/flower.py [--python PATH] [--samples N] [--rounds N] [--repeats N] [--workers KIND]

The model, data, clients, steps and cores are the same; raysim packs its clients (clients_per_actor: auto), as Flower
does. The two alternate, so that other load on the machine affects both. Flower pins its own version of Ray, so it runs
in a separate environment. PATH is a Python with flwr[simulation], torch and psutil. By default one is created in
build/flower, which takes some minutes and a few GiB once. Rounds without training measure the overhead of a round, not
training speed. Uses MNIST if $RAYSIM_DATA contains it, else noise of the same shape.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from timing import add_workers
from workload import BATCH, saved, with_raysim

from raysim.system.capacity import this_machine

HERE = Path(__file__).parent
OWN = HERE.parent / "build" / "flower"
FLOWER = "flwr[simulation]==1.41.0"


@dataclass(frozen=True)
class Setting:
    what: str
    clients: int

    @property
    def methods(self) -> dict[str, Any]:
        return {} if self.what == "train" else {"workload:Idle": {}}


SETTINGS = [Setting("idle", 10), Setting("idle", 100), Setting("train", 10), Setting("train", 100)]


def environment() -> Path:
    """Return the Python of Flower's environment; create the environment if it does not exist."""
    python = OWN / "bin" / "python"
    if not (OWN / "installed").exists():
        print(f"making an environment for Flower in {OWN}", flush=True)
        venv.create(OWN, with_pip=True, clear=True)
        torch = f"torch=={version('torch').partition('+')[0]}"
        subprocess.run([python, "-m", "pip", "install", "--quiet", FLOWER, torch, "psutil"], check=True)
        (OWN / "installed").touch()
    return python


def with_flower(python: Path, data: Path, setting: Setting, rounds: int) -> list[float]:
    """Time the rounds with Flower; return the seconds of each round after the warm-up."""
    cores = int(this_machine().cpus)
    arguments = [str(data), str(setting.clients), str(rounds), setting.what, str(cores)]
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [python, "-c", "import flower_app; flower_app.main()", *arguments],
        cwd=HERE,
        env={**os.environ, **quiet, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
    )
    printed = [line for line in done.stdout.splitlines() if line.startswith('{"seconds"')]
    if not printed:
        sys.exit(f"Flower failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    seconds: list[float] = json.loads(printed[0])["seconds"]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="a Python that has Flower; by default one is made")
    parser.add_argument("--samples", type=int, default=6000, help="over all clients; a multiple of 100 (6000)")
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds of each run (10)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (3)")
    add_workers(parser)
    asked = parser.parse_args()
    python = asked.python.absolute() if asked.python else environment()
    table = Table("clients", "samples", "clients do", "Flower s", "raysim s", "Flower / raysim", "range")
    with tempfile.TemporaryDirectory() as folder:
        name, data = saved(folder, asked.samples)
        for number, setting in enumerate(SETTINGS):
            turns = []
            for turn in range(asked.repeats):
                theirs = with_flower(python, data, setting, asked.rounds)
                out = Path(folder, f"{number}-{turn}")
                packed = {"clients_per_actor": "auto", "workers": asked.workers}
                ours = with_raysim(data, setting.clients, asked.rounds, out, methods=setting.methods, resources=packed)
                turns.append((theirs, ours.seconds))
            seconds = [median([s for turn in turns for s in turn[side]]) for side in (0, 1)]
            ratios = sorted(median(theirs) / median(ours) for theirs, ours in turns)
            table.add_row(
                str(setting.clients),
                str(asked.samples // setting.clients),
                "nothing" if setting.what == "idle" else "one epoch",
                *(f"{second:.4f}" for second in seconds),
                f"{median(ratios):.2f}",
                f"{ratios[0]:.2f} - {ratios[-1]:.2f}",
            )
    table.title = f"per round, {name}, MNIST CNN, batch {BATCH}, {int(this_machine().cpus)} cores: medians"
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
