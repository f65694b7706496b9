"""One process at a time in a directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from raysim.system.errors import ConfigError


@contextmanager
def alone(directory: Path, what: str) -> Iterator[None]:
    """Make the directory and keep others out, who would take what is under way here for their own to go on with.

    The lock dies with its process. A file system without locks, as some network ones are, keeps nobody out.

    Args:
        directory: where to be alone.
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
