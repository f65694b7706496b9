"""The benchmarks' workload: the MNIST CNN on images shared equally by the clients, its config, and its runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import WARM_UP, Clock

import raysim
from raysim.api import ClientHalf, Delta, Method
from raysim.api.client import Client
from raysim.data.mnist import mnist
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay
from raysim.system.errors import ConfigError

BATCH, LR = 32, 0.01
TWO_TASKS = {"kind": "domain_incremental", "tasks": 2, "shift": "rotation"}
TEST = 100  # evaluation is not timed, so a few samples are enough


@dataclass(frozen=True, kw_only=True)
class Idle(Method):
    """Idle: clients send a zero update without training, which leaves the overhead of a round; they may sleep."""

    seconds: float = 0.0

    class Client(ClientHalf):
        method: Idle

        def train(self, client: Client) -> Delta:
            time.sleep(self.method.seconds)
            return Delta(torch.zeros_like(client.received), torch.zeros_like(client.model.buffers))


@dataclass
class Watch(Clock, RunDisplay):
    """A clock that times a run as its display; `sha256` are its bits in the end."""

    sha256: str | None = None

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone):
            self.round_done()


def images(count: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the name of the data, the images (uint8 [count, 28, 28, 1]) and their labels (int64)."""
    try:
        train = mnist(Path(os.environ.get("RAYSIM_DATA", "")), False).train
        return "MNIST", train.x[:count].reshape(count, 28, 28, 1), train.y[:count]
    except ConfigError:
        draws = np.random.default_rng(0)
        return "noise", draws.integers(0, 256, (count, 28, 28, 1), np.uint8), draws.integers(0, 10, count)


def saved(folder: str, count: int) -> tuple[str, Path]:
    """Write the images to a file; return the name of the data and the file."""
    what, x, y = images(count)
    path = Path(folder, "data.npz")
    np.savez(path, x_train=x, y_train=y, x_test=x[:TEST], y_test=y[:TEST])
    return what, path


def noise(folder: Path, count: int, shape: tuple[int, int, int]) -> Path:
    """Write random images (uint8 [count, height, width, channels]) and labels to a file, and return it."""
    path = folder / f"{count}-{'x'.join(map(str, shape))}.npz"
    if not path.exists():
        draws = np.random.default_rng(0)
        x, y = draws.integers(0, 256, (count, *shape), np.uint8), draws.integers(0, 10, count)
        np.savez(path, x_train=x, y_train=y, x_test=x[:TEST], y_test=y[:TEST])
    return path


def config(data: Path, clients: int, rounds: int, **more: Any) -> dict[str, Any]:
    """Return a config with one task; keyword arguments are blocks that extend or replace these."""
    return {
        "name": "benchmark",
        "dataset": {"name": "npz", "path": str(data)},
        "scenario": {"kind": "class_incremental", "tasks": 1},
        "clients": {"count": clients},
        "model": {"name": "mnist_cnn"},
        "training": {"rounds_per_task": rounds, "batch_size": BATCH, "optimizer": {"lr": LR}},
        **more,
    }


def command(*given: str) -> None:
    """Carry out one of raysim's commands. Its configs may name this folder's modules."""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-m", "raysim", *given], check=True, stdout=subprocess.DEVNULL, env=environment)


def summary_of(asked: dict[str, Any], out: Path, *options: str) -> dict[str, Any]:
    """Run a config in its own process, and return what its summary.json has."""
    file = out.with_suffix(".yaml")
    file.write_text(json.dumps(asked), encoding="utf-8")
    command("run", str(file), "--quiet", "--out", str(out), *options)
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return summary


def recorded_rounds(out: Path) -> int:
    """Return the number of rounds that a run has recorded."""
    path = out / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def with_raysim(data: Path, clients: int, rounds: int, out: Path, **more: Any) -> Watch:
    """Time the rounds with raysim on Ray. Runs one additional round, as the last one is followed by an evaluation."""
    watch = Watch(rounds)
    watch.sha256 = raysim.run(config(data, clients, WARM_UP + rounds + 1, **more), out=out, display=watch).model_sha256
    return watch
