"""Rounds on one GPU: clients one at a time, as CUDA graphs, in eight processes, and as one program.

    python benchmarks/vectorise.py [--models NAME ...] [--clients N ...] [--rounds N] [--repeats N] [--pfl]

Each client has 30 samples, which are one step. Rows alternate within a repeat; figures are medians. Eight processes
have an eighth of the clients each, and wait for each other after every round. With --pfl, pfl-research 0.6 runs next to
raysim: 1,000 clients of 50 samples, 50 in a round, five steps each, with its own CNN. Needs no Ray. Without a GPU, this
prints a message and exits.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from workload import Watch, config, noise

import raysim
from raysim.engine.events import RoundDone
from raysim.system.errors import RunError

SAMPLES, PROCESSES = 30, 8
MODELS: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "mnist_cnn": ({"name": "mnist_cnn"}, (28, 28, 1)),
    "mlp": ({"name": "mlp", "hidden": [200, 200]}, (28, 28, 1)),
    "resnet18": ({"name": "resnet18"}, (32, 32, 3)),
    "pfl": ({"name": "vectorise:simple_cnn"}, (32, 32, 3)),
}
WAYS = ("one at a time", "graphs", "8 processes, graphs", "8 together", "64 together", "256 together")


def simple_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the CNN of pfl-research's CIFAR-10 benchmark, which takes images [B, C, H, W] here."""
    side = (shape[1] - 4) // 2
    convolutions = [nn.Conv2d(shape[0], 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    dense = [nn.Linear(side * side * 64, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, classes)]
    return nn.Sequential(*convolutions, nn.Dropout(0.25), nn.Flatten(), *dense)


@dataclass
class Met(Watch):
    """A watch that waits for other processes after every round."""

    wait: Callable[[], object] = field(default=lambda: None)

    def take(self, event: Any) -> None:
        if isinstance(event, RoundDone):
            self.wait()
        super().take(event)


def one_run(
    folder: str, model: str, clients: int, rounds: int, together: int | None, graphs: bool, wait: Any = None
) -> tuple[list[float], str, int]:
    """Return the seconds of the timed rounds, the bits, and the MiB that torch has reserved on the GPU."""
    settings, shape = MODELS[model]
    of_pfl = model == "pfl"
    samples = 50 if of_pfl else SAMPLES
    watch = Met(rounds, wait=wait or (lambda: None))
    more = {"model": settings, "resources": {"gpus_per_actor": 1, "cuda_graphs": graphs}}
    more |= {"participation": {"count": 50}} if of_pfl else {}
    asked = config(noise(Path(folder), clients * samples, shape), clients, rounds + 3, **more)
    asked["training"] |= {"vectorise": together} | ({"batch_size": 10} if of_pfl else {})
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    out = Path(tempfile.mkdtemp(dir=folder), "run")
    sha = raysim.run(asked, out=out, local=True, display=watch).model_sha256
    return watch.seconds, str(sha)[:8], torch.cuda.max_memory_reserved() // 2**20


def _part(barrier: Any, found: Any, *arguments: Any) -> None:
    found.put(one_run(*arguments, barrier.wait))


def in_processes(folder: str, model: str, clients: int, rounds: int) -> tuple[list[float], str, int]:
    """Run an eighth of the clients in each of eight processes, round by round at the same time."""
    noise(Path(folder), clients // PROCESSES * SAMPLES, MODELS[model][1])
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(PROCESSES), context.Queue()
    arguments = (barrier, found, folder, model, clients // PROCESSES, rounds, None, True)
    started = [context.Process(target=_part, args=arguments) for _ in range(PROCESSES)]
    for process in started:
        process.start()
    parts = [found.get(timeout=300) for _ in started]
    for process in started:
        process.join()
    return parts[0][0], "of parts", sum(memory for _, _, memory in parts)


def run_way(way: str, folder: str, model: str, clients: int, rounds: int) -> tuple[list[float], str, int]:
    if way.startswith("8 processes"):
        return in_processes(folder, model, clients, rounds)
    together = int(way.split()[0]) if way.endswith("together") else None
    return one_run(folder, model, clients, rounds, together, way != "one at a time")


def with_pfl(rounds: int) -> list[float]:
    """Return the seconds of pfl-research's rounds, without evaluation."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Timed(TrainingProcessCallback):
        def __init__(self) -> None:
            self.ends: list[float] = []

        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            torch.cuda.synchronize()
            self.ends.append(time.perf_counter())
            return False, Metrics()

    draws = torch.Generator().manual_seed(0)
    x = torch.rand(1000, 50, 3, 32, 32, generator=draws).cuda()
    y = torch.randint(0, 10, (1000, 50), generator=draws).cuda()
    module = simple_cnn((3, 32, 32), 10).cuda()
    loss = nn.CrossEntropyLoss()
    vars(module)["loss"] = lambda inputs, targets: loss(module.train()(inputs), targets)
    vars(module)["metrics"] = lambda inputs, targets: {}
    users = FederatedDataset(
        lambda user: PyTorchTensorDataset((x[user], y[user])), get_user_sampler("random", [*range(1000)])
    )
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    timed = Timed()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 3, evaluation_frequency=10**6, train_cohort_size=50, val_cohort_size=0
        ),
        backend=SimulatedBackend(training_data=users, val_data=None),
        model=model,
        model_train_params=NNTrainHyperParams(local_batch_size=10, local_num_epochs=1, local_learning_rate=0.01),
        callbacks=[timed],
    )
    return np.diff(timed.ends)[2:].tolist()


def compare(asked: argparse.Namespace, folder: str, rows: Sequence[tuple[str, int, str]]) -> None:
    seconds: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    facts: dict[tuple[str, int, str], tuple[str, int]] = {}
    for _ in range(asked.repeats):
        for row in rows:
            model, clients, way = row
            if way == "pfl-research":
                seconds[row] += with_pfl(asked.rounds)
                facts[row] = ("", 0)
            elif row not in facts or facts[row][0] != "none":
                try:
                    found, *rest = run_way(way, folder, model, clients, asked.rounds)
                    seconds[row] += found
                    facts[row] = (rest[0], rest[1])
                except (RunError, torch.cuda.OutOfMemoryError) as error:
                    print(row, str(error)[:200], flush=True)
                    facts[row] = ("none", 0)
            print(row, [f"{number:.4f}" for number in seconds[row]], facts[row], flush=True)
    table = Table("model", "clients", "way", "s per round", "x one at a time", "MiB", "bits")
    for row in rows:
        first = median(seconds.get((row[0], row[1], WAYS[0])) or [float("nan")])
        spent = median(seconds[row] or [float("nan")])
        table.add_row(
            row[0], str(row[1]), row[2], f"{spent:.4f}", f"{first / spent:.2f}", str(facts[row][1]), facts[row][0]
        )
    table.title = f"{torch.cuda.get_device_name()}, torch {torch.__version__}: medians"
    Console(width=110).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=[*MODELS][:3], default=[*MODELS][:3])
    parser.add_argument("--clients", nargs="*", type=int, default=[8, 64, 512])
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds of each run (5)")
    parser.add_argument("--repeats", type=int, default=1, help="repetitions (1)")
    parser.add_argument("--pfl", action="store_true", help="add pfl-research's set-up")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("no GPU here: nothing to measure")
        return
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    rows = [(model, clients, way) for model in asked.models for clients in asked.clients for way in asked.ways]
    if asked.pfl:
        rows += [("pfl", 1000, way) for way in (*WAYS[:2], "64 together", "pfl-research")]
    with tempfile.TemporaryDirectory() as folder:
        compare(asked, folder, rows)


if __name__ == "__main__":
    main()
