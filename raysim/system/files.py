"""Atomic writes, one-line write errors, and directories locked by one process."""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from shlex import quote
from typing import IO, Any

from raysim.system.errors import ConfigError, NotWritten

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
WHOLE = ("config.yaml", "summary.json", "model.pt")  # files of a run's directory


def partial_path(path: Path) -> Path:
    """Return the hidden path, in the same directory, for a file that is not complete yet."""
    return path.with_name(f".{path.name}")


def is_partial(path: Path) -> bool:
    """Return whether this is an incomplete file of a run that was killed."""
    return any(path.name == partial_path(Path(name)).name for name in WHOLE)


def read_whole(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: the file cannot be read, or it is a pipe or a device. Their content may have no end.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "this is no regular file, but a pipe or a device", str(path))
    return path.read_bytes()


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file, or a link to one, to read it.

    Raises:
        OSError: the file cannot be read, or it is a folder, a pipe or a device. None of these is waited for.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "this is no regular file", str(path))
    return os.fdopen(handle, "rb")


def digest_file(path: Path) -> str:
    """Return the SHA-256 digest of a regular file's content. Raises OSError if it cannot be read."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically: it replaces the previous one when it is complete and on disk.

    Raises:
        OSError: the file could not be written. The previous file is unchanged.
    """
    part = partial_path(path)
    try:
        with part.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            flush_to_disk(file)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def flush_to_disk(file: IO[Any]) -> None:
    """Have what was written to a file reach the disk. A file system that cannot be asked to has done what it can."""
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise


@contextmanager
def convert_write_errors(what: Path | str, directory: Path) -> Iterator[None]:
    """Convert an OSError during writes to a run's directory into a one-line RunError.

    Raises:
        NotWritten: the disk is full, the directory is missing, or another problem prevented writing.
    """
    try:
        yield
    except OSError as error:
        first = "make room" if error.errno in NO_ROOM else "fix this"
        if isinstance(error, FileNotFoundError):
            first = f"{directory} was deleted or moved: start the run again, or put it back"
        raise NotWritten(
            f"{what} could not be written ({error.strerror or error}); {first}, then run raysim run --resume "
            f"--out {quote(str(directory))}"
        ) from error


def is_locked(directory: Path) -> bool:
    """Return whether a process holds the lock of a directory; False on a file system without locks."""
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return False
    finally:
        os.close(lock)


@contextmanager
def lock_directory(directory: Path, what: str) -> Iterator[None]:
    """Create the directory and lock it, so that no other process resumes the same run.

    The lock is released when its process ends. File systems without locks, such as some network ones, ignore it.

    Args:
        directory: the directory to lock.
        what: its user, a run or a sweep.

    Raises:
        ConfigError: another process (or this one) holds the lock, or the directory is not writable.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise ConfigError(f"--out {directory}: it cannot be written to: {error.strerror or error}") from error
    try:
        with suppress(OSError):  # the file system has no locks
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                problem = f"--out {directory}: another {what} is at work there; wait for it, or give another --out"
                raise ConfigError(problem) from None
        yield
    finally:
        os.close(lock)
