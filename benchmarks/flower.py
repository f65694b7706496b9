"""Seconds per round: raysim against Flower's simulation, both on Ray, with no-op and with real training.

    python benchmarks/flower.py [--python PATH] [--samples N] [--rounds N] [--repeats N]

Same model, data, clients, steps and cores; raysim packs its clients (clients_per_actor: auto), as Flower does. The two
take turns, so that whatever else the machine does falls on both. Flower pins a Ray of its own, so it runs in an
environment of its own: PATH is a Python that has flwr[simulation], torch and psutil; without it one is made in
build/flower, which takes some minutes and a few GiB once. No-op rounds say what a round costs without its training,
and are no training speed. MNIST where $RAYSIM_DATA has it, else noise of its shape.
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
    """Return the Python of Flower's environment; make it where it is not there."""
    python = OWN / "bin" / "python"
    if not (OWN / "installed").exists():
        print(f"making an environment for Flower in {OWN}", flush=True)
        venv.create(OWN, with_pip=True, clear=True)
        torch = f"torch=={version('torch').partition('+')[0]}"
        subprocess.run([python, "-m", "pip", "install", "--quiet", FLOWER, torch, "psutil"], check=True)
        (OWN / "installed").touch()
    return python


def with_flower(python: Path, data: Path, setting: Setting, rounds: int) -> list[float]:
    """Time the rounds with Flower; return the seconds of those that count."""
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
    told = [line for line in done.stdout.splitlines() if line.startswith('{"seconds"')]
    if not told:
        sys.exit(f"Flower failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    seconds: list[float] = json.loads(told[0])["seconds"]
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="a Python that has Flower; by default one is made")
    parser.add_argument("--samples", type=int, default=6000, help="of all clients together; a multiple of 100 (6000)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each run that are counted (10)")
    parser.add_argument("--repeats", type=int, default=3, help="how often the two take turns (3)")
    asked = parser.parse_args()
    python = asked.python or environment()
    table = Table("clients", "samples", "clients do", "Flower s", "raysim s", "Flower / raysim", "of turns")
    with tempfile.TemporaryDirectory() as folder:
        name, data = saved(folder, asked.samples)
        for number, setting in enumerate(SETTINGS):
            turns = []
            for turn in range(asked.repeats):
                theirs = with_flower(python, data, setting, asked.rounds)
                out = Path(folder, f"{number}-{turn}")
                packed = {"clients_per_actor": "auto"}
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
