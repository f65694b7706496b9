"""Interruptions of a run and the rounds that each cost: one line each in checkpoints/losses.jsonl."""

from __future__ import annotations

import json
from pathlib import Path

from raysim.system.files import convert_write_errors, write_whole


class Interruptions:
    """The interruptions of a run so far, in all its processes: their `count`, and the `rounds` computed again."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "checkpoints" / "losses.jsonl"
        noted = [json.loads(line) for line in self._lines()]
        self.count = len(noted)
        self.rounds: int = sum(line["rounds_recomputed"] for line in noted)

    def note(self, why: str, back_to: int, rounds: int) -> None:
        """Write down an interruption: its cause, the round gone back to, and how many rounds are computed again.

        Raises:
            RunError: it could not be written.
        """
        self.count += 1
        self.rounds += rounds
        line = json.dumps({"why": why, "back_to_round": back_to, "rounds_recomputed": rounds})
        with convert_write_errors(self._path, self._path.parent.parent):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, "".join(f"{each}\n" for each in [*self._lines(), line]))

    def _lines(self) -> list[str]:
        """Return the lines so far, without one that was being written when the process ended."""
        if not self._path.exists():
            return []
        return self._path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()


def find_interruption(directory: Path) -> str | None:
    """Return how the run in a directory broke off; None where there is none, or it was stopped between two rounds."""
    if not (directory / "rounds.jsonl").exists():
        return None
    try:
        status = json.loads((directory / "summary.json").read_text(encoding="utf-8"))["status"]
    except (OSError, ValueError, KeyError):
        return "the process ended in the middle of the run"
    return None if status == "interrupted" else f"the run {status}"
