"""Cost of each method relative to FedAvg: seconds per round and bytes, on the same clients, steps and data.

    python benchmarks/methods.py [--rounds N] [--repeats N]

Ten clients with 600 images each, MNIST CNN, two tasks, in this process (--local), on one core. Each repeat runs all
methods one after the other. Figures are medians over rounds of the second task, in which memories are filled and
anchors exist; ratios are to FedAvg in the same repeat. Uses MNIST if $RAYSIM_DATA contains it, else noise of the same
shape.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table
from workload import TWO_TASKS, config, saved

import raysim
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay

CLIENTS, SAMPLES = 10, 6000
METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedProx": {"fedprox": {}},
    "SCAFFOLD": {"scaffold": {}},
    "FedAvgM": {"fedavgm": {}},
    "FedAdam": {"fedadam": {"lr": 0.001}},
    "FedYogi": {"fedyogi": {"lr": 0.001}},
    "A-GEM": {"a_gem": {}},
    "ER": {"er": {}},
    "DER": {"der": {}},
    "DER++": {"der": {"beta": 0.5}},
    "Fed-A-GEM": {"fed_a_gem": {}},
    "DER + Fed-A-GEM": {"der": {}, "fed_a_gem": {}},
    "SPECIAL": {"special": {}},
    "SPECIAL-C": {"special_c": {}},
    "Re-Fed": {"re_fed": {"epochs": 2}},
    "FedTrack": {"fedtrack": {}},
    "C-FLAG": {"c_flag": {}},
    "Joint": {"joint": {}},
    "Fixed": {"fixed": {}},
}


class Rounds(RunDisplay):
    """Seconds and bytes of the rounds of the second task; the first one, with the cost of the boundary, is separate."""

    def __init__(self) -> None:
        self.first = 0.0
        self.seconds: list[float] = []
        self.nbytes: list[int] = []

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone) and event.tasks == [2]:
            self.seconds.append(event.seconds)
            self.nbytes.append(event.bytes_up + event.bytes_down)


def run(methods: dict[str, Any], data: Path, rounds: int, out: Path) -> Rounds:
    seen = Rounds()
    asked = config(data, CLIENTS, rounds + 1, scenario=TWO_TASKS, methods=methods, logging={"tensorboard": False})
    raysim.run(asked, out=out, local=True, display=seen)
    seen.first, *seen.seconds = seen.seconds
    del seen.nbytes[0]
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="timed rounds of each run (4)")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions (3)")
    asked = parser.parse_args()
    found: dict[str, list[Rounds]] = {name: [] for name in METHODS}
    with tempfile.TemporaryDirectory() as folder:
        what, data = saved(folder, SAMPLES)
        for turn in range(asked.repeats):
            for number, (name, methods) in enumerate(METHODS.items()):
                found[name].append(run(methods, data, asked.rounds, Path(folder, f"{turn}-{number}")))
    table = Table("method", "s per round", "x FedAvg", "first round of a task, s", "bytes x FedAvg")
    plain = found["FedAvg"]
    for name, turns in found.items():
        seconds = median(s for turn in turns for s in turn.seconds)
        ratio = median(median(turn.seconds) / median(fedavg.seconds) for turn, fedavg in zip(turns, plain, strict=True))
        first = median(turn.first for turn in turns)
        nbytes = median(turns[0].nbytes) / median(plain[0].nbytes)
        table.add_row(name, f"{seconds:.3f}", f"{ratio:.2f}", f"{first:.2f}", f"{nbytes:.2f}")
    console = Console(width=100)
    console.print(f"{what}, {CLIENTS} clients of {SAMPLES // CLIENTS} samples, MNIST CNN, one core")
    console.print(table)


if __name__ == "__main__":
    main()
