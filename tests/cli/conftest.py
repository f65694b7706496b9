import os
from collections.abc import Callable
from contextlib import suppress

import pytest

from raysim.cli import main


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A function that returns what a command leaves on a stream, a terminal with colors, and checks its status."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def run(stream: str, status: int, *argv: str) -> str:
        leader, follower = os.openpty()
        with os.fdopen(follower, "w") as terminal, monkeypatch.context() as patch:
            patch.setattr(f"sys.{stream}", terminal)
            assert main(argv) == status
        pieces = []
        with suppress(OSError):  # the terminal's end of file
            while piece := os.read(leader, 65536):
                pieces.append(piece)
        os.close(leader)
        return b"".join(pieces).decode().replace("\r\n", "\n").rpartition("\x1b[2K")[2]

    return run
