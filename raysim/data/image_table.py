"""The image files of a dataset as a table of paths, sizes and times, which is compact enough for millions of files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from raysim.data.dataset import Array, MissingData
from raysim.system.errors import RunError
from raysim.system.files import open_regular

AT_ONCE = 4096  # files that a thread looks at
THREADS = 8  # which wait for a file system; looking itself is fast
ADVICE = "put that file back, then resume the run, or start a new one"


@dataclass(frozen=True, eq=False)
class ImageNames:
    """The paths of image files in order."""

    names: npt.NDArray[np.uint8]
    """The bytes of all paths, one after the other."""
    ends: npt.NDArray[np.int64]
    """Where each path ends in `names`, [N]."""

    def __len__(self) -> int:
        return len(self.ends)

    def path(self, row: int) -> Path:
        """Return the path of an image."""
        begin = int(self.ends[row - 1]) if row else 0
        return Path(os.fsdecode(self.names[begin : int(self.ends[row])].tobytes()))

    def encoded(self) -> list[bytes]:
        """Return all paths."""
        joined, ends = self.names.tobytes(), self.ends.tolist()
        return [joined[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def join_names(paths: Iterable[str]) -> ImageNames:
    """Return these paths in a compact form."""
    encoded = [os.fsencode(path) for path in paths]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return ImageNames(np.frombuffer(b"".join(encoded), np.uint8), ends)


@dataclass(frozen=True, eq=False)
class ImageTable:
    """Image files in order. They must keep their sizes and times while a run uses them."""

    images: ImageNames
    sizes: npt.NDArray[np.int64]
    """The bytes of each file, [N]."""
    times: npt.NDArray[np.int64]
    """When each file was last written, in nanoseconds, [N]."""
    digest: str
    """The SHA-256 digest of the paths below their common folder, of the sizes, and of the times."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def nbytes(self) -> int:
        """The bytes of the table in memory."""
        return sum(array.nbytes for array in (self.images.names, self.images.ends, self.sizes, self.times))

    @property
    def place(self) -> str:
        """The path of the first image, which tells a folder from another one with the same digest."""
        return str(self.path(0).absolute())

    def path(self, row: int) -> Path:
        """Return the path of an image."""
        return self.images.path(row)

    def read(self, row: int) -> bytes:
        """Return the content of an image's file. Raises RunError if it has changed or cannot be read."""
        path = self.path(row)
        try:
            with open_regular(path) as file:
                self._require_same(row, path, os.fstat(file.fileno()))
                content = file.read()
        except OSError as error:
            raise _gone(path, error) from None
        if len(content) != self.sizes[row]:
            raise changed(path)
        return content

    def require_unchanged(self, row: int) -> None:
        """Raise RunError if an image's file has changed since the table was made, or is gone."""
        path = self.path(row)
        try:
            found = os.stat(path)
        except OSError as error:
            raise _gone(path, error) from None
        self._require_same(row, path, found)

    def _require_same(self, row: int, path: Path, found: os.stat_result) -> None:
        if (found.st_size, found.st_mtime_ns) != (self.sizes[row], self.times[row]):
            raise changed(path)


def changed(path: Path) -> RunError:
    """Return the error about a file with other content than before."""
    return RunError(f"dataset.path: {path} has changed since the run began; {ADVICE}")


def _gone(path: Path, error: OSError) -> RunError:
    reason = error.strerror or error
    return RunError(f"dataset.path: {path}, which the run uses, cannot be read any more ({reason}); {ADVICE}")


def read_table(images: ImageNames) -> ImageTable:
    """Return the table of these files, at least one. Raises MissingData: a file is absent."""
    paths = images.encoded()
    with ThreadPoolExecutor(THREADS) as pool:
        parts = [*pool.map(_look, (paths[start : start + AT_ONCE] for start in range(0, len(paths), AT_ONCE)))]
    sizes, times = np.concatenate(parts).T.copy()
    return ImageTable(images, sizes, times, _digest(paths, sizes, times))


def _look(paths: Sequence[bytes]) -> Array:
    """Return the size and the time of each file, int64 [n, 2]."""
    found = np.empty((len(paths), 2), np.int64)
    for row, path in enumerate(paths):
        try:
            status = os.stat(path)
        except OSError as error:
            known = os.fsdecode(path)
            problem = f"there is no image {known}" if isinstance(error, FileNotFoundError) else f"{known}: {error}"
            raise MissingData(f"dataset.path: {problem}") from error
        found[row] = status.st_size, status.st_mtime_ns
    return found


def _digest(names: Sequence[bytes], sizes: Array, times: Array) -> str:
    first, last = min(names), max(names)  # their common beginning is that of all
    begin = len(os.path.commonpath([first, last])) if first != last else 0
    digest = sha256(b"\0".join(name[begin:] for name in names))
    for array in (sizes, times):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
