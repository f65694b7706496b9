"""Locks that let only one process work in a directory at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raysim.system.errors import ConfigError


@contextmanager
def lock_directory(directory: Path, what: str) -> Iterator[None]:
    """Make the directory, and lock it against other processes, which would go on with what is under way there.

    The lock dies with its process. A file system without locks, as some network ones are, keeps nobody out.

    Args:
        directory: the directory to lock.
        what: what is at work there, a run or a sweep.

    Raises:
        ConfigError: another process (or another lock of this one) is there, or nothing can be written there.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"--out {directory}: it cannot be written to: {error.strerror or error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        words = f"--out {directory}: another {what} is at work there; wait for it, or give another --out"
        raise ConfigError(words) from None
    except OSError:
        pass
    try:
        yield
    finally:
        os.close(lock)
