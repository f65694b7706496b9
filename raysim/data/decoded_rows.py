"""Decoded images in a file that the processes of a node fill together, each image as it is first needed.

Rows are read and written, not mapped. Pages of a mapped file count as a process's memory, and a full disk kills what
writes to one. The system keeps what was read in its own cache, which all processes share.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from zlib import crc32

import numpy as np

from raysim.data.dataset import Array
from raysim.system.errors import RunError

RECORD = np.dtype([("content", "<u8"), ("pixels", "<u4"), ("known", "<u4")])
"""What is known of a row: the digest of its file's content, the checksum of its pixels, and what of both is there."""
SEEN, KEPT = 1, 2  # values of `known`; 0 is nothing


class DecodedRows:
    """The file of decoded images, and next to it the file of a record for each row.

    A row's record is written after its pixels, and has their checksum. So a process that is killed leaves no row that
    looks whole, and neither does a machine that loses power. Processes may write the same row at the same time, as they
    write the same bytes.

    Args:
        path: the file without its suffix. Its folder is made.
        shape: the shape of an image, of uint8.

    Raises:
        RunError: the files cannot be opened.
    """

    def __init__(self, path: Path, shape: tuple[int, ...]) -> None:
        self._path, self._shape = path, shape
        self._size = int(np.prod(shape))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._pixels, self._records = (_open(path.with_suffix(suffix)) for suffix in (".pixels", ".rows"))
        except OSError as error:
            raise self._error(error) from error

    def record(self, row: int) -> tuple[int, int, int]:
        """Return what is known of a row: the digest of its file, the checksum of its pixels, and SEEN, KEPT or 0."""
        found = os.pread(self._records, RECORD.itemsize, row * RECORD.itemsize)
        if len(found) < RECORD.itemsize:
            return 0, 0, 0
        content, pixels, known = np.frombuffer(found, RECORD)[0].tolist()
        return content, pixels, known

    def read(self, row: int, checksum: int) -> Array | None:
        """Return a row with this checksum; None if the file has other content there."""
        x = np.empty(self._shape, np.uint8)
        read = os.preadv(self._pixels, [x.data], row * self._size)
        return x if read == self._size and crc32(x.data) == checksum else None

    def note(self, row: int, content: int) -> None:
        """Write the digest of a row's file, without pixels. Raises RunError, as `write`."""
        self._write_record(row, (content, 0, SEEN))

    def write(self, row: int, content: int, x: Array) -> None:
        """Write a row's contiguous pixels, then its record.

        Raises:
            RunError: there is no room, or the disk fails.
        """
        self._write(self._pixels, x.data.cast("B"), row * self._size)
        self._write_record(row, (content, crc32(x.data), KEPT))

    def _write_record(self, row: int, record: tuple[int, int, int]) -> None:
        self._write(self._records, memoryview(np.array(record, RECORD).tobytes()), row * RECORD.itemsize)

    def _write(self, handle: int, content: memoryview, place: int) -> None:
        try:
            while content:
                written = os.pwrite(handle, content, place)
                content, place = content[written:], place + written
                if not written:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> RunError:
        problem = f"decoded images cannot be written to {self._path.with_suffix('.pixels')} ({error.strerror or error})"
        advice = "make room there, lower dataset.decoded_gib, or set dataset.load=memory"
        return RunError(f"dataset.load: found disk, but {problem}; {advice}")


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
