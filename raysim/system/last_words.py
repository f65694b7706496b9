"""What is left if this process is killed: told beforehand to one that outlives it (raysim/actors/reaper.py)."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

FORGET = "forget"  # as in reaper.py


class LastWords:
    """The command that goes on, and the summaries of the runs under way, as one that outlives this process knows them.

    Args:
        file, command: the user is told to go on with the command, if the file is there.
    """

    def __init__(self, file: Path, command: str) -> None:
        self._said = {"": json.dumps({"file": os.path.abspath(file), "command": command})}
        self._pipe: IO[bytes] | None = None

    def tell(self, pipe: IO[bytes]) -> None:
        """Tell one that listens at a pipe everything so far, and from now on what is said; the one before forgets."""
        self._send(FORGET)
        self._pipe = pipe
        for line in self._said.values():
            self._send(line)

    def prepare(self, directory: Path, summary: str) -> None:
        """Have summary.json written in a run's directory if there is none then.

        `summary` is the JSON of one; what rounds.jsonl says is counted from there.
        """
        folder = os.path.abspath(directory)
        self._said[folder] = f'{{"directory": {json.dumps(folder)}, "summary": {summary}}}'
        self._send(self._said[folder])

    def _send(self, line: str) -> None:
        with suppress(OSError, ValueError):  # nobody listens any more, or not yet again
            if self._pipe is not None:
                self._pipe.write(f"{line}\n".encode())
                self._pipe.flush()
