"""What the keys for large models cost and save: python benchmarks/large_models.py [--rounds N].

Each line is a run of its own process: one client, batches of 16, eight steps a round, one thread. Seconds are a step's,
the median of the rounds after the first one. Memory is the process's peak, with torch and raysim.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import raysim

STEPS = 8
VIT = {"name": "vit", "width": 192, "depth": 12, "heads": 3, "patch": 8, "input_size": None}
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "vit": (VIT, {}),
    "vit, precision: bfloat16": (VIT, {"model.precision": "bfloat16"}),
    "vit, checkpointing: true": (VIT, {"model.checkpointing": True}),
    "vit, both": (VIT, {"model.precision": "bfloat16", "model.checkpointing": True}),
    "vit, accumulate: 4": (VIT, {"training.accumulate": 4}),
    "resnet18": ({"name": "resnet18"}, {}),
    "resnet18, precision: bfloat16": ({"name": "resnet18"}, {"model.precision": "bfloat16"}),
}


def measure(name: str, rounds: int) -> tuple[float, float]:
    """Return the seconds of a step and the peak memory in MiB of this process."""
    model, keys = RUNS[name]
    config = {
        "name": "large-models",
        "dataset": {"name": "synthetic", "classes": 10, "shape": [3, 64, 64], "train": 16 * STEPS, "test": 16},
        "scenario": {"kind": "domain_incremental", "tasks": 1},
        "clients": {"count": 1},
        "model": model,
        "training": {"rounds_per_task": rounds + 1, "local_steps": STEPS, "batch_size": 16},
        "logging": {"tensorboard": False},
    }
    with tempfile.TemporaryDirectory() as folder:
        raysim.run(config, keys, out=Path(folder) / "run", local=True)
        lines = (Path(folder) / "run" / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    seconds = [json.loads(line)["seconds"] / STEPS for line in lines[1:]]
    return statistics.median(seconds), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="the run that this process makes")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only, arguments.rounds)))
        return
    print("| run | MiB | seconds of a step |\n|---|---:|---:|")
    for name in RUNS:
        command = [sys.executable, __file__, "--only", name, "--rounds", str(arguments.rounds)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        seconds, memory = json.loads(answer)
        print(f"| {name} | {memory:,.0f} | {seconds:.3f} |", flush=True)


if __name__ == "__main__":
    main()
