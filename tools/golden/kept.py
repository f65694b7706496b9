"""The kept golden runs: a file for each machine and precision, and the accuracies for all other machines.

A file is a list of moves, oldest first. A move has the hashes of the runs that are new or differ from before. So the
last move that names a run has its hashes.

Each move has a token: the hash of the file's name, of all moves before, and of the move. CHANGELOG.md has the token in
the entry that names the runs. A changed hash gives another token, which no entry has. This needs no history of Git.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bits.trees import TOOLS

FOLDER = TOOLS.parent / "tests" / "golden"
ACCURACIES = "accuracies.json"

Hashes = Mapping[str, str]
Move = Mapping[str, Hashes | None]
"""Run -> its hashes, or None where it moved on another machine and has not been computed on this one since."""


@dataclass(frozen=True)
class KeptFile:
    """The golden runs of a machine and a precision.

    Args:
        stem: see `golden.machine.Machine.stem`.
        moves: oldest first.
    """

    stem: str
    moves: Sequence[Move] = ()

    @property
    def hashes(self) -> dict[str, Hashes | None]:
        """The hashes of each run."""
        return {name: hashes for move in self.moves for name, hashes in move.items()}

    @property
    def tokens(self) -> list[str]:
        """The token of each move."""
        found, token = [], self.stem
        for move in self.moves:
            token = hashlib.sha256(json.dumps([token, move], sort_keys=True).encode()).hexdigest()[:8]
            found.append(token)
        return found

    def moved(self, found: Mapping[str, Hashes | None]) -> KeptFile:
        """Return the file with what is new in these hashes as one more move, or itself."""
        now = self.hashes
        move = {name: hashes for name, hashes in found.items() if name not in now or now[name] != hashes}
        return replace(self, moves=[*self.moves, move]) if move else self


def read_kept(folder: Path = FOLDER) -> dict[str, KeptFile]:
    """Return all kept files by stem."""
    paths = sorted(path for path in folder.glob("*.json") if path.name != ACCURACIES)
    return {path.stem: KeptFile(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in paths}


def write_kept(file: KeptFile, folder: Path = FOLDER) -> None:
    """Write a file, one run a line in each move."""
    text = ",\n".join(_lines(move) for move in file.moves)
    (folder / f"{file.stem}.json").write_text(f"[\n{text}\n]\n", encoding="utf-8")


def read_accuracies(folder: Path = FOLDER) -> dict[str, Mapping[str, Any]]:
    """Return by run its `accuracy` matrices, by protocol, and the number of test `samples` of each task."""
    path = folder / ACCURACIES
    found: dict[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def write_accuracies(kept: Mapping[str, Mapping[str, Any]], folder: Path = FOLDER) -> None:
    """Write the accuracies of runs, one run a line."""
    (folder / ACCURACIES).write_text(f"{_lines(kept)}\n", encoding="utf-8")


def _lines(values: Mapping[str, Any]) -> str:
    lines = (f" {json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())
    return "{\n" + ",\n".join(lines) + "\n}"
