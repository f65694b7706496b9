"""What a run lost and computed again: a line for each loss, in checkpoints/losses.jsonl, which outlives the process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Losses:
    """The losses of a run so far: `count` of them, and the `rounds` that had to be computed again, all together."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "checkpoints" / "losses.jsonl"
        noted = self._noted()
        self.count = len(noted)
        self.rounds = sum(line["rounds_recomputed"] for line in noted)

    def note(self, why: str, back_to: int, rounds: int) -> None:
        """Write down a loss: what happened, the round gone back to, and how many rounds are computed again."""
        self.count += 1
        self.rounds += rounds
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"why": why, "back_to_round": back_to, "rounds_recomputed": rounds}) + "\n")

    def _noted(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        whole = self._path.read_text(encoding="utf-8").rpartition("\n")[0]  # a line that was being written is left out
        return [json.loads(line) for line in whole.splitlines()]


def unfinished(directory: Path) -> str | None:
    """Return how the run in a directory was lost, or None where there is none, or it was stopped in good order."""
    if not (directory / "rounds.jsonl").exists():
        return None
    try:
        status = json.loads((directory / "summary.json").read_text(encoding="utf-8"))["status"]
    except (OSError, ValueError, KeyError):
        return "the process ended in the middle of the run"
    return None if status == "interrupted" else f"the run {status}"
