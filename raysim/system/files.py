"""Files written whole or not at all, what could not be written said in one line; directories locked by one process."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from raysim.system.errors import ConfigError, RunError

WHOLE = ("config.yaml", "summary.json", "model.pt")  # of a run's directory


def partial_path(path: Path) -> Path:
    """Return where a file is written until it is whole: beside its place, hidden."""
    return path.with_name(f".{path.name}")


def is_partial(path: Path) -> bool:
    """Return whether this is one of a run's files that was being written when its process was killed."""
    return any(path.name == partial_path(Path(name)).name for name in WHOLE)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that takes its place once it is whole and on disk, so that no moment can leave half of it.

    Raises:
        OSError: it could not be written; what was there before is as it was.
    """
    part = partial_path(path)
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


@contextmanager
def convert_write_errors(what: Path | str, directory: Path) -> Iterator[None]:
    """Convert an OSError while a run's directory is written into a RunError of one line.

    Raises:
        RunError: there was no room for it, or something else kept it from being written.
    """
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{what} could not be written ({error.strerror or error}); make room, and go on with raysim run --resume "
            f"--out {directory}"
        ) from error


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
        with suppress(OSError):  # no locks there
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                words = f"--out {directory}: another {what} is at work there; wait for it, or give another --out"
                raise ConfigError(words) from None
        yield
    finally:
        os.close(lock)
