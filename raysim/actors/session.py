"""The private folder of a Ray session. It is deleted at the end, even if the process that made it is killed."""

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from raysim.actors import compat, reaper
from raysim.actors.compat import LONGEST_PARENT
from raysim.actors.fork_server import LOG, SOCKET, ForkServer, end_process
from raysim.config.schema import Resources
from raysim.system.errors import ConfigError
from raysim.system.interrupts import delay_interrupts

PREFIX = "raysim-"
OLD = 3600.0  # seconds after which an empty folder is no longer one that a process is about to use
RAYS = "r"  # Ray's folder in the private one; Ray opens it to all users


class Session:
    """A folder that only this user can enter, for the files of a cluster and its fork server."""

    def __init__(self, folder: Path) -> None:
        self.rays = folder / RAYS  # the folder for Ray's files
        self.forks: ForkServer | None = None  # the fork server, if there is one


def open_early(resources: Resources) -> AbstractContextManager[Session | None]:
    """Open the session before the cluster starts, if `raysim run` will fork its actors on this machine.

    The fork server and the `raysim` command then import torch in parallel.
    """
    forks = resources.forks and resources.address is None
    return open_session(forked=True) if forks else nullcontext()


@contextmanager
def open_session(forked: bool) -> Iterator[Session]:
    """Make a session, and clear the sessions that are no longer in use. A session in use is locked.

    At the end, kill the session's processes and delete its folder. If this process is killed, the reaper does so.

    Args:
        forked: whether to start a fork server, if this Ray can use one.
    """
    folder = private_folder()
    lock = _lock(folder)
    script = [sys.executable, "-P", reaper.__file__, folder]
    nowhere = subprocess.DEVNULL
    waiting = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True)
    session = Session(Path(folder))
    try:
        session.rays.mkdir()
        if forked and compat.why_plain() is None:
            session.forks = ForkServer(Path(folder))
        yield session
    finally:
        with delay_interrupts():
            if session.forks is not None:
                session.forks.end()
            reaper.clear(folder)
            end_process(waiting)
            os.close(lock)


def private_folder() -> str:
    """Make a folder that only this user can enter or replace, with a path that is short enough for sockets.

    Raises:
        ConfigError: there is no place for it.
    """
    places = dict.fromkeys((tempfile.gettempdir(), "/tmp"))
    for place in places:
        # If others can write to a folder, they can rename this user's folders there, unless the sticky bit is set.
        with suppress(OSError):
            mode = os.stat(place).st_mode
            if len(place) > LONGEST_PARENT or not place.isascii() or (mode & 0o022 and not mode & stat.S_ISVTX):
                continue
            for left in Path(place).glob(f"{PREFIX}????????"):
                _clear_unused(left)
            folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
            try:
                if _is_closed_to_others(os.stat(folder, follow_symlinks=False)):
                    os.close(_lock(folder))
                    return folder
            except OSError:  # the file system has no locks
                os.rmdir(folder)
                raise
            os.rmdir(folder)
    raise ConfigError(
        f"TMPDIR: found {' and '.join(places)}, allowed: a folder whose path has at most {LONGEST_PARENT} characters, "
        "all of them ASCII, on a file system with locks, and in which no other user can rename or open this user's "
        "folders"
    )


def _lock(folder: str) -> int:
    """Lock a folder and return its descriptor. Raises OSError if the file system has no locks."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        os.close(lock)
        raise
    return lock


def _is_closed_to_others(status: os.stat_result) -> bool:
    """Return whether this is a folder (not a link) that belongs to this user and that no other user can enter."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _clear_unused(folder: Path) -> None:
    """Clear a private folder if it holds only a session's files and no process has locked it.

    An empty one may have been made just now, by a process that has not locked it yet. So it is cleared only if it is
    old.
    """
    with suppress(OSError):  # the folder was deleted meanwhile, belongs to another user, or is in use
        lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            names = {*os.listdir(lock)}
            used = bool(names) or time.time() - os.fstat(lock).st_mtime > OLD
            if _is_closed_to_others(os.fstat(lock)) and used and names <= {RAYS, SOCKET, LOG}:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                reaper.clear(str(folder))
        finally:
            os.close(lock)
