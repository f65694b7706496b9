"""The run directory: everything a run leaves behind, written as its events come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from raysim import metrics
from raysim.config import Config, dump
from raysim.errors import ConfigError
from raysim.events import Accuracies, Event, Finished, RoundDone, Started, line
from raysim.tensorboard import Board


class Recording:
    """Writes a run directory and keeps what summary.json needs.

    Args:
        directory: absent or empty; `claim` checked that.
    """

    def __init__(self, config: Config, directory: Path) -> None:
        self.config = config
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.yaml").write_text(dump(config), encoding="utf-8")
        self._rounds = (directory / "rounds.jsonl").open("w", encoding="utf-8")
        self._board = Board(directory) if config.logging.tensorboard else None
        self.rounds = 0
        self.updates = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self.virtual_time = 0.0
        self.participation = [0] * config.clients.count
        self.round_seconds: list[float] = []
        self.untrained: Accuracies = {}
        self.matrices: dict[str, list[list[float]]] = {}
        self.interrupted = False
        self.sha256: str | None = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rounds.close()
        if self._board:
            self._board.close()

    def take(self, event: Event) -> None:
        """Write down one event."""
        if isinstance(event, Started):
            self.untrained = event.evaluation
            self.matrices = {protocol: [] for protocol in event.evaluation}
        elif isinstance(event, RoundDone):
            self._take_round(event)
        elif isinstance(event, Finished):
            self.interrupted = event.interrupted
            self.sha256 = sha256(event.state)
            torch.save(dict(event.state), self.directory / "model.pt")

    def picture(self, name: str, image: npt.NDArray[np.uint8]) -> None:
        """Keep a picture (uint8 [H, W, 3]) as NAME.png, and in TensorBoard."""
        Image.fromarray(image).save(self.directory / f"{name}.png")
        if self._board:
            self._board.image(name, image)

    def evaluation(self) -> dict[str, dict[str, object]]:
        """Return the metrics by protocol, over the tasks that are done."""
        return {
            p: metrics.summarise(matrix, self.untrained[p], self.config.in_step) for p, matrix in self.matrices.items()
        }

    def summarise(self, status: str, **more: Any) -> dict[str, Any]:
        """Write summary.json and return it."""
        summary = {
            "name": self.config.name,
            "seed": self.config.seed,
            "methods": list(self.config.methods),
            "status": status,
            "clients": self.config.clients.count,
            "tasks": self.config.scenario.tasks,
            "rounds": self.rounds,
            "updates": self.updates,
            "evaluation": self.evaluation(),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "participation": self.participation,
            "virtual_time": self.virtual_time,
            "model_sha256": self.sha256,
            **more,
        }
        text = json.dumps(summary, indent=2, allow_nan=False) + "\n"
        (self.directory / "summary.json").write_text(text, encoding="utf-8")
        return summary

    def _take_round(self, event: RoundDone) -> None:
        self.rounds += 1
        self.updates += len(event.cohort)
        for client in event.cohort:
            self.participation[client] += 1
        self.virtual_time = event.virtual_time
        self.bytes_up += event.bytes_up
        self.bytes_down += event.bytes_down
        self.round_seconds.append(event.seconds)
        self._rounds.write(json.dumps(line(event)) + "\n")
        self._rounds.flush()
        if event.task_done and event.evaluation is not None:
            for protocol, row in event.evaluation.items():
                self.matrices[protocol].append(list(row))
        if self._board:
            self._board.round(event, self.matrices, self.participation, self.bytes_up + self.bytes_down)


def claim(directory: Path) -> None:
    """Check that a run may write to this directory.

    Raises:
        ConfigError: it is a file, or it holds anything.
    """
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"--out {directory}: this is a file, allowed: a new or empty directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise ConfigError(f"--out {directory}: this directory is not empty, allowed: a new or empty one")


def sha256(state: Mapping[str, Tensor]) -> str:
    """Return the digest over the state_dict's tensors in order, each as contiguous little-endian bytes."""
    digest = hashlib.sha256()
    for tensor in state.values():
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()
