"""Samples in a file that is mapped into memory, so that the processes of a node have its pages once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from raysim.data.dataset import Array, Split
from raysim.system.checksums import write_checksum
from raysim.system.files import digest_file, flush_to_disk


@dataclass(frozen=True, eq=False)
class MappedSplit(Split):
    """A split with samples in a `.npy` file. If it is pickled, the file is named and its content is left out."""

    path: Path = Path()

    def __reduce__(self) -> tuple[Any, ...]:
        return open_split, (self.path, self.y, self.clients, self.columns)


def open_split(path: Path, y: Array, clients: Array | None, columns: Mapping[str, Array]) -> MappedSplit:
    """Return the split with the samples of a file. Raises OSError or ValueError: the file cannot be read."""
    return MappedSplit(np.load(path, mmap_mode="r"), y, clients, columns, path)


def fits(path: Path, shape: tuple[int, ...]) -> bool:
    """Return whether a regular file has float32 numbers of this shape. Its content is not read."""
    try:
        found = np.load(path, mmap_mode="r") if path.is_file() else None
    except (OSError, ValueError):
        return False
    return isinstance(found, np.memmap) and (found.dtype, found.shape) == (np.float32, shape)


def write_rows(path: Path, shape: tuple[int, ...], parts: Iterator[Array]) -> None:
    """Write float32 rows [n, ...] of consecutive parts as one file of this shape, and its checksum next to it.

    It gets its name once it is whole.

    Raises:
        OSError: the file cannot be written, or there is no room for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    nbytes, free = 4 * int(np.prod(shape)), shutil.disk_usage(path.parent).free
    if nbytes > free:
        raise OSError(f"it would have {nbytes / 2**20:,.0f} MiB, but there is room for {free / 2**20:,.0f} MiB")
    handle, part = tempfile.mkstemp(prefix=f".{path.stem}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            header = {
                "descr": np.lib.format.dtype_to_descr(np.dtype(np.float32)),
                "fortran_order": False,
                "shape": shape,
            }
            np.lib.format.write_array_header_1_0(file, header)
            for rows in parts:
                file.write(np.ascontiguousarray(rows, np.float32).data)
            flush_to_disk(file)
        os.chmod(part, 0o644)
        digest = digest_file(Path(part))
        os.replace(part, path)
        write_checksum(path, digest)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
