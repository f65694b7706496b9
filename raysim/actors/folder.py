"""The folder of a Ray of one's own: deleted at its end, or by the next run where the process was killed before."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "raysim-"
LONGEST_PARENT = 25  # /raysim-12345678, /session_DATE_TIME_MICROSECONDS_PID and /sockets/plasma_store take 82 of 107
YOUNG = 60.0  # seconds; what another process has just made it may not have locked yet


@contextmanager
def session_folder() -> Iterator[str]:
    """Make a folder that is locked while it is in use, and delete those that nobody uses any more.

    Ray's sockets lie in it, and a socket's path has at most 107 bytes.
    """
    temporary = tempfile.gettempdir()
    parent = Path(temporary if len(os.fsencode(temporary)) <= LONGEST_PARENT else "/tmp")
    for left in parent.glob(f"{PREFIX}????????"):
        _delete_unused(left)
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _delete_unused(folder: Path) -> None:
    """Delete a folder whose lock, which dies with its process, is free, and which holds Ray's sessions and no more."""
    try:
        rays = {path.name.startswith("session_") for path in folder.iterdir()}
        if rays != {True} or time.time() - folder.stat().st_mtime < YOUNG:
            return
        lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:  # gone meanwhile, or somebody else's
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
