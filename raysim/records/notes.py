"""What callbacks record: a line of callbacks.jsonl for each number, a PNG below figures/ for each picture."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

RECORDED = "callbacks.jsonl"
FIGURES, DIGITS = "figures", 6  # a picture's folder, and the digits of its round


@dataclass(frozen=True)
class Note:
    """A number, or a picture as a PNG file's bytes, that a callback has recorded after a round.

    Notes are kept until the next checkpoint. A picture's array would take many times as much memory.
    """

    round: int
    callback: str
    name: str
    value: float | bytes

    @property
    def file(self) -> str:
        """The file of a run's directory that it goes to."""
        return RECORDED if isinstance(self.value, float) else f"{FIGURES}/{self.name}-{self.round:0{DIGITS}d}.png"

    def write(self, path: Path) -> None:
        """Write it to that file; a number that is not finite, which JSON lacks, becomes null. Raises OSError."""
        if isinstance(self.value, float):
            value = self.value if math.isfinite(self.value) else None
            line = {"round": self.round, "callback": self.callback, "name": self.name, "value": value}
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(self.value)


def delete_figures(directory: Path, after: int) -> None:
    """Delete the pictures of later rounds than this one from a run's directory."""
    for path in (directory / FIGURES).glob("*.png"):
        round = path.stem.rpartition("-")[2]
        if len(round) >= DIGITS and round.isdecimal() and int(round) > after:
            path.unlink()
