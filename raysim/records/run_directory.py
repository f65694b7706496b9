"""The run directory: everything a run leaves behind, written as its events come."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from raysim.config import Config, dump
from raysim.config.error_text import shorten
from raysim.engine.events import Event, Finished, RoundDone, Started, line
from raysim.evaluation import metrics
from raysim.evaluation.per_client import Spread
from raysim.records.tensorboard import Board
from raysim.records.totals import Tally
from raysim.system.errors import ConfigError, RunError
from raysim.system.files import is_part, part_of, put, writing

ROUNDS = "rounds.jsonl"
BOARD = "events.out.*"


class Recording:
    """Writes a run directory and keeps what summary.json needs. What cannot be written raises RunError.

    Args:
        directory: absent or empty, as `claim` checked; or what `going_back` has brought to a checkpoint.
        recorded: what `position` said at that checkpoint; None is a run from the start.
    """

    def __init__(self, config: Config, directory: Path, recorded: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.directory = directory
        with self._writing("config.yaml"):
            directory.mkdir(parents=True, exist_ok=True)
            if not (directory / "config.yaml").exists():
                put(directory / "config.yaml", dump(config))
        with self._writing(ROUNDS):
            self._rounds = (directory / ROUNDS).open("a", encoding="utf-8")
        with self._writing(BOARD):
            self._board = Board(directory) if config.logging.tensorboard else None
        self.tally = Tally([0] * config.clients.count) if recorded is None else Tally(**recorded["tally"])
        self.interrupted = False
        self.sha256: str | None = None
        self.per_client: Mapping[str, Spread] | None = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._writing(ROUNDS):
                self._rounds.close()
            with self._writing(BOARD):
                if self._board:
                    self._board.close()
        except RunError:
            if error is None:  # else that is what is to be told
                raise

    def take(self, event: Event) -> None:
        """Write down one event."""
        if isinstance(event, Started) and event.evaluation is not None:
            self.tally.begin(event.evaluation)
        elif isinstance(event, RoundDone):
            self._take_round(event)
        elif isinstance(event, Finished):
            self.interrupted = event.interrupted
            self.sha256 = sha256(event.state)
            self.per_client = event.per_client
            model = BytesIO()
            torch.save(dict(event.state), model)
            with self._writing("model.pt"):
                put(self.directory / "model.pt", model.getvalue())

    def position(self) -> dict[str, Any]:
        """Write out what is buffered, and say how much there is: `files` by name in bytes, and the tally."""
        with self._writing(ROUNDS):
            self._rounds.flush()
            os.fsync(self._rounds.fileno())
        with self._writing(BOARD):
            if self._board:
                self._board.flush()
        return {
            "files": {path.name: path.stat().st_size for path in written(self.directory)},
            "tally": self.tally.state(),
        }

    def picture(self, name: str, image: npt.NDArray[np.uint8]) -> None:
        """Keep a picture (uint8 [H, W, 3]) as NAME.png, and in TensorBoard."""
        with self._writing(f"{name}.png"):
            Image.fromarray(image).save(self.directory / f"{name}.png")
        with self._writing(BOARD):
            if self._board:
                self._board.image(name, image)

    def evaluation(self) -> dict[str, dict[str, object]]:
        """Return the metrics by protocol, over the tasks that are done."""
        return {
            protocol: metrics.summarise(matrix, self.tally.untrained[protocol], self.config.in_step)
            for protocol, matrix in self.tally.matrices.items()
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
            "rounds": self.tally.rounds,
            "updates": self.tally.updates,
            "evaluation": self.evaluation(),
            **({} if self.per_client is None else {"per_client": self.per_client}),
            "bytes_up": self.tally.bytes_up,
            "bytes_down": self.tally.bytes_down,
            "steps": self.tally.steps,
            "participation": self.tally.participation,
            "virtual_time": self.tally.virtual_time,
            "model_sha256": self.sha256,
            **more,
        }
        text = json.dumps(summary, indent=2, allow_nan=False) + "\n"
        with self._writing("summary.json"):
            put(self.directory / "summary.json", text)
        return summary

    def _take_round(self, event: RoundDone) -> None:
        self.tally.add(event)
        with self._writing(ROUNDS):
            self._rounds.write(json.dumps(line(event)) + "\n")
            self._rounds.flush()
        with self._writing(BOARD):
            if self._board:
                self._board.round(event, self.tally)

    def _writing(self, name: str) -> AbstractContextManager[None]:
        return writing(self.directory / name, self.directory)


def rounds_since(directory: Path, recorded: Mapping[str, Any] | None) -> int:
    """Return how many rounds a run has written down since a checkpoint (None: since its start)."""
    rounds = directory / ROUNDS
    kept = 0 if recorded is None else recorded["files"].get(ROUNDS, 0)
    return rounds.read_bytes()[kept:].count(b"\n") if rounds.exists() else 0


def going_back(directory: Path, recorded: Mapping[str, Any] | None) -> None:
    """Cut what a run has written back to what it had at a checkpoint (None: at its start).

    TensorBoard's files are cut as rounds.jsonl is: its own way of purging goes by steps, which here are rounds, virtual
    milliseconds or KiB.
    """
    kept = {} if recorded is None else recorded["files"]
    for path in written(directory):
        if path.name in kept:
            os.truncate(path, kept[path.name])
        else:
            path.unlink()
    for path in (directory / "summary.json", directory / "model.pt"):
        path.unlink(missing_ok=True)
        part_of(path).unlink(missing_ok=True)


def written(directory: Path) -> list[Path]:
    """Return the files that grow while a run goes on."""
    return sorted(path for pattern in (ROUNDS, BOARD) for path in directory.glob(pattern))


def claim(directory: Path) -> None:
    """Check that a run may write to this directory, and leave nothing there.

    Raises:
        ConfigError: it is a file, it holds anything, or it cannot be made.
    """
    try:
        if directory.exists() and not directory.is_dir():
            raise ConfigError(f"--out {directory}: this is a file, allowed: a new or empty directory")
        if directory.is_dir() and not all(map(is_part, directory.iterdir())):
            raise ConfigError(f"--out {directory}: this directory is not empty, allowed: a new or empty one")
        _try_to_make(directory)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"--out {shorten(str(directory))}: {why}, allowed: a directory that can be made and written to"
        ) from error


def _try_to_make(directory: Path) -> None:
    """Make the directory and a file in it, and take away what was made. Raises OSError where that cannot be done."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ROUNDS).touch()
        (directory / ROUNDS).unlink()
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def sha256(state: Mapping[str, Tensor]) -> str:
    """Return the digest over the state_dict's tensors in order, each as contiguous little-endian bytes."""
    digest = hashlib.sha256()
    for tensor in state.values():
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()
