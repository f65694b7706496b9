"""Make the run directories of this folder: `python tests/kept/make.py`, in a checkout of the commit they are kept of.

Run it in the root of the checkout, while this folder holds no runs. It writes relative paths only, and needs no Ray.
"""

import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from pack_results import pack

import raysim
from raysim.callbacks import Callback, RunView
from raysim.engine.events import RoundDone
from raysim.launch.stop_file import request_stop
from raysim.system.errors import RunError

socket.gethostname = lambda: "host"  # in the names of TensorBoard's files
KEPT = Path("tests/kept")
SMALL: dict[str, Any] = {
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 96, "test": 40},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "partition": {"kind": "dirichlet", "alpha": 1.0, "min_samples": 2},
    "clients": {"count": 4},
    "model": {"name": "mlp", "hidden": [5]},
    "training": {"rounds_per_task": 4, "local_epochs": 3, "batch_size": 4, "optimizer": {"name": "sgd", "lr": 0.1}},
    "memory": {"capacity": 10},
}
RUNS: dict[str, dict[str, Any]] = {
    "finished": {"methods": {"der": {"alpha": 0.5}}, "clients.dropout": 0.25, "logging.memory": True},
    "asynchronous": {
        "methods": {"er": {}},
        "schedule": {
            "kind": "asynchronous",
            "concurrency": 3,
            "buffer_size": 2,
            "speeds": {"kind": "log_normal", "sigma": 0.3},
        },
        "evaluation": {"per_client": True, "every_rounds": 2},
        "logging": {"tensorboard": False, "dispatches": True},
    },
    "failed": {
        "training": {"rounds_per_task": 4, "batch_size": 8, "optimizer": {"lr": 30.0}},
        "logging.tensorboard": False,
    },
    "stopped": {
        "methods": {"der": {}, "fed_a_gem": {}, "fedavgm": {}},
        "clients": {"count": 4, "arrive": {"at": [{"round": 3, "clients": [3]}]}, "dropout": 0.25},
        "participation": {"fraction": 0.7},
        "training.optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        "training.keep_optimizer": True,
    },
    "killed": {
        "methods": {"er": {}, "fedadam": {}},
        "schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "pareto"}},
        "clients.dropout": 0.25,
        "checkpoint.every_rounds": 2,
        "evaluation": {"every_rounds": 1},
        "logging.tensorboard": False,
    },
}
STOPPED_AFTER, KILLED_AFTER = 5, 5  # rounds, of 8; the killed run has a checkpoint of round 4
SWEEP: dict[str, Any] = {
    "name": "sweep",
    "base": {"name": "sweep", **SMALL, "logging": {"tensorboard": False}},
    "grid": {"seed": [0, 1], "methods": {"FedAvg": {}, "ER": {"er": {}}}},
}


class Stopping(Callback):
    """Asks for the end of the run after a round, as a person does by making a file `stop`."""

    def on_round(self, run: RunView, done: RoundDone) -> None:
        if done.round == STOPPED_AFTER:
            request_stop(run.directory)


class Killing:
    """Ends the process after a round as if it had been killed; what it has of a display is all that a run asks for."""

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == KILLED_AFTER:
            os._exit(9)

    def say(self, text: str) -> None:
        pass


def make(name: str) -> None:
    """Make the run of this name, in a process of its own."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    callbacks = [Stopping()] if name == "stopped" else []
    display: Any = Killing() if name == "killed" else None
    config = {"name": name, **SMALL}
    with suppress(RunError):
        raysim.run(config, RUNS[name], out=KEPT / name, local=True, callbacks=callbacks, display=display)
    os._exit(0)


def make_sweep() -> None:
    """Make four runs, and keep them as one packed file."""
    raysim.sweep(SWEEP, out=KEPT / "sweep", local=True)
    pack(KEPT / "sweep")
    shutil.rmtree(KEPT / "sweep")


if __name__ == "__main__":
    for name in RUNS:
        make(name)
    make_sweep()
