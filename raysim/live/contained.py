"""Files of a run, read without following a link that leads out of it.

The page may be seen by other users of this machine. Whoever can write into a run's directory could otherwise have it
show any file that the page's own user may read.
"""

import errno
import os
import stat
from pathlib import Path

LINK = "this is a link, and the page follows none"


def open_below(root: Path, path: Path) -> int:
    """Open a file below a folder for reading, and return its descriptor. The folder itself may be a link.

    Raises:
        OSError: it cannot be read, is no regular file, or is a link. So may be a folder between the two.
    """
    parts = path.relative_to(root).parts
    if not parts or ".." in parts:
        raise OSError(errno.EINVAL, "this is no file of the run", str(path))
    *folders, name = parts
    opened = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = _open(folder, os.O_DIRECTORY, opened, path)
            os.close(opened)
            opened = inner
        file = _open(name, os.O_NONBLOCK, opened, path)  # opening a pipe would block
    finally:
        os.close(opened)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "this is no regular file", str(path))
    return file


def read_below(root: Path, path: Path) -> bytes:
    """Return the content of a file below a folder. The errors are those of `open_below`."""
    with os.fdopen(open_below(root, path), "rb") as file:
        return file.read()


def _open(name: str, flags: int, folder: int, path: Path) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=folder)
    except OSError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, LINK, str(path)) from error
        raise
