"""What a run lost and computed again: a line for each loss, in checkpoints/losses.jsonl, which outlives the process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raysim.system.files import put, writing


class Losses:
    """The losses of a run so far: `count` of them, and the `rounds` that had to be computed again, all together."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "checkpoints" / "losses.jsonl"
        noted = self._noted()
        self.count = len(noted)
        self.rounds = sum(line["rounds_recomputed"] for line in noted)

    def note(self, why: str, back_to: int, rounds: int) -> None:
        """Write down a loss: what happened, the round gone back to, and how many rounds are computed again.

        Raises:
            RunError: it could not be written.
        """
        self.count += 1
        self.rounds += rounds
        line = json.dumps({"why": why, "back_to_round": back_to, "rounds_recomputed": rounds})
        with writing(self._path, self._path.parent.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            put(self._path, "".join(f"{each}\n" for each in [*self._lines(), line]))

    def _noted(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines()]

    def _lines(self) -> list[str]:
        """Return the lines so far, without one that was being written when the process ended."""
        if not self._path.exists():
            return []
        return self._path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()


def unfinished(directory: Path) -> str | None:
    """Return how the run in a directory was lost, or None where there is none, or it was stopped in good order."""
    if not (directory / "rounds.jsonl").exists():
        return None
    try:
        status = json.loads((directory / "summary.json").read_text(encoding="utf-8"))["status"]
    except (OSError, ValueError, KeyError):
        return "the process ended in the middle of the run"
    return None if status == "interrupted" else f"the run {status}"
