"""A process that outlives the run ends what is left of its session and deletes the session's folder."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysim.actors import reaper

SESSION = """
import os, signal, subprocess, sys, tempfile
tempfile.tempdir = sys.argv[1]
from raysim.actors.session import open_session
with open_session(forked=False) as session:
    with open(session.rays / "log", "a") as log:
        left = subprocess.Popen(["sleep", "60"], stdout=log, start_new_session=True)
    print(left.pid, session.rays.parent, flush=True)
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as path:
        yield Path(path)


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_nothing_is_left_of_a_session_however_its_process_ends(how: str, temporary: Path) -> None:
    command = [sys.executable, "-c", SESSION, str(temporary), how]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    assert ended.returncode == (-signal.SIGKILL if how == "killed" else 0)
    pid, folder = ended.stdout.split()
    limit = time.monotonic() + 30
    while Path(folder).exists() or Path(f"/proc/{pid}/fd/1").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert not list(temporary.iterdir())


def test_only_processes_that_write_into_the_folder_are_ended(temporary: Path) -> None:
    """Not one that reads there, nor one that writes into a folder whose name begins with the same letters."""
    session, other = temporary / "session", temporary / "session-2"
    session.mkdir()
    other.mkdir()
    (session / "log").touch()
    with (session / "log").open("a") as log, (session / "log").open() as reading, (other / "log").open("a") as apart:
        writer, reader, neighbor = (
            subprocess.Popen(["sleep", "60"], **{how: file})
            for how, file in (("stdout", log), ("stdin", reading), ("stdout", apart))
        )
    try:
        reaper.clear(str(session))
        assert writer.wait(10) == -signal.SIGKILL
        assert reader.poll() is None
        assert neighbor.poll() is None
        assert [path.name for path in temporary.iterdir()] == ["session-2"]
    finally:
        for process in (writer, reader, neighbor):
            process.kill()
            process.wait()
