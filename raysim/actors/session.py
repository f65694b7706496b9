"""The folder of a Ray session: closed to all other users, and cleared however the process that made it ends."""

import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from raysim.actors import compat, reaper
from raysim.actors.compat import LONGEST_PARENT
from raysim.actors.forking.starting import LOG, SOCKET, ForkServer
from raysim.config.schema import Resources
from raysim.system.errors import ConfigError
from raysim.system.interrupts import delay_interrupts

PREFIX = "raysim-"
RAYS = "r"  # Ray opens its folder to all users, so it lies inside one that is closed to them


class Session:
    """A folder that only this user can enter, for the files of one Ray and of its fork server.

    Attributes:
        rays: the folder for Ray's files.
        forks: the fork server, if there is one.
    """

    def __init__(self, folder: Path) -> None:
        self.rays = folder / RAYS
        self.forks: ForkServer | None = None


def open_early(resources: Resources) -> AbstractContextManager[Session | None]:
    """Open the session of the Ray that `raysim run` will start with these resources, if it will fork its actors.

    The fork server then imports torch while the command does.
    """
    forks = resources.forks and resources.address is None
    return open_session(forked=True) if forks else nullcontext()


@contextmanager
def open_session(forked: bool) -> Iterator[Session]:
    """Make a session, locked while it is in use, and clear those that are no longer in use.

    At the end its processes that are left are ended, and the folder is deleted. If this process is killed, the reaper,
    which outlives it, does so.

    Args:
        forked: whether to start a fork server, if Ray can use one.
    """
    folder = private_folder()
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
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
            waiting.communicate()
            os.close(lock)


def private_folder() -> str:
    """Make a folder that only this user can enter and nobody else can replace, where sockets have room.

    Raises:
        ConfigError: there is no place for it.
    """
    places = dict.fromkeys((tempfile.gettempdir(), "/tmp"))
    for place in places:
        # other users may rename what lies in a folder that they can write to, unless it is sticky
        with suppress(OSError):
            mode = os.stat(place).st_mode
            if len(place) > LONGEST_PARENT or not place.isascii() or (mode & 0o022 and not mode & stat.S_ISVTX):
                continue
            for left in Path(place).glob(f"{PREFIX}????????"):
                _clear_unused(left)
            folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
            if _is_private(os.stat(folder, follow_symlinks=False)):
                return folder
            os.rmdir(folder)
    raise ConfigError(
        f"TMPDIR: found {' and '.join(places)}, allowed: a folder whose path has at most {LONGEST_PARENT} characters, "
        "all of them ASCII, and in which no other user can rename or open what lies in this user's own folders"
    )


def _is_private(status: os.stat_result) -> bool:
    """Return whether this is a folder (no link) of this user's that nobody else can enter."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _clear_unused(folder: Path) -> None:
    """Clear a private folder that holds only a session's, and whose lock, released when its process ends, is free."""
    with suppress(OSError):  # it was deleted meanwhile, belongs to another user, or is in use
        lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            names = {*os.listdir(lock)}
            if _is_private(os.fstat(lock)) and names and names <= {RAYS, SOCKET, LOG}:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                reaper.clear(str(folder))
        finally:
            os.close(lock)
