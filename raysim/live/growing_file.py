"""The lines of a file that another process writes. It grows, and may be cut back or replaced."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from raysim.live.contained import open_below

PIECE = 4 * 2**20  # bytes read at a time, so that a page sees how far the reading of a large file is
LONGEST_LINE = 64 * 2**20  # bytes
COMPARED = 256  # bytes before the place where reading continues


def describe_files(paths: Sequence[Path]) -> list[tuple[int, int, int] | None]:
    """Return a description of each file that changes when its content does; None if it cannot be looked at."""
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append(None)
    return found


@dataclass(frozen=True)
class Growth:
    """What one reading found.

    Attributes:
        lines: the whole lines that are new.
        restarted: whether the file was cut back or replaced, so that earlier lines no longer count.
        more: whether the file has more to read now.
    """

    lines: list[bytes]
    restarted: bool
    more: bool


class GrowingFile:
    """A file of lines, read from where the last reading ended.

    Args:
        path: the file.
        root: the folder that no link may lead out of.

    Attributes:
        size: the bytes of the file at the last reading.
        offset: the bytes that were read.
    """

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self._root = root
        self.forget()

    def forget(self) -> None:
        """Have the next reading begin at the file's beginning."""
        self.size = self.offset = 0
        self._identity: tuple[int, int] | None = None
        self._partial = b""  # of a line whose end is not written yet
        self._tail = b""  # the last bytes read

    def read(self) -> Growth:
        """Read at most PIECE bytes; nothing is new while there is no file.

        Raises:
            OSError: the file cannot be read.
            ValueError: it has a line without an end.
        """
        try:
            file = open_below(self._root, self.path)
        except FileNotFoundError:
            return Growth([], False, False)
        with os.fdopen(file, "rb", buffering=0) as opened:
            status = os.fstat(file)
            restarted = self._differs(opened, status)
            if restarted:
                self.forget()
            self._identity, self.size = (status.st_dev, status.st_ino), status.st_size
            opened.seek(self.offset)
            piece = opened.read(PIECE)
        self.offset += len(piece)
        self._tail = (self._tail + piece)[-COMPARED:]
        *lines, self._partial = (self._partial + piece).split(b"\n")
        if len(self._partial) > LONGEST_LINE:
            raise ValueError(f"found a line of more than {LONGEST_LINE:,} bytes")
        return Growth(lines, restarted, self.offset < self.size)

    def _differs(self, opened: FileIO, status: os.stat_result) -> bool:
        """Return whether this is no longer the file, or not the beginning, that was read."""
        if self._identity is None:
            return False
        if self._identity != (status.st_dev, status.st_ino):
            return True
        opened.seek(self.offset - len(self._tail))
        return opened.read(len(self._tail)) != self._tail
