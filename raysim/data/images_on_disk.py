"""Images that are decoded when they are read: in place of an array, a table of their files."""

from __future__ import annotations

import os
import shutil
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL

from raysim.data.dataset import Array, Unread
from raysim.data.decoded_rows import KEPT, DecodedRows
from raysim.data.image_table import ImageTable, changed
from raysim.data.pictures import EncodedImage, Look, decode
from raysim.system.capacity import GIB, this_machine
from raysim.system.errors import ConfigError
from raysim.system.version import VERSION

FOLDER = "decoded"  # below the folder of the datasets
AHEAD = 2**25  # bytes of images that are read ahead
MOST_THREADS = 8
NICE = 10  # of threads that read ahead: they use cores that are idle


@dataclass(frozen=True, eq=False)
class ImageStore:
    """The images of a dataset: their files, what they become, and the file of those that have been decoded."""

    table: ImageTable
    look: Look
    stored: npt.NDArray[np.bool_]
    """For each image whether it is not turned upright, see `EncodedImage.as_stored`."""
    path: Path
    """The file of decoded images, without its suffix."""
    kept: int
    """How many decoded images are kept at most. They are spread evenly over the rows."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an image."""
        return 1 if self.look.grey else 3, self.look.size, self.look.size

    @property
    def identity(self) -> str:
        """All that the images follow from, besides their files' content."""
        return f"{self.table.digest} {self.look} {blake2b(self.stored.data).hexdigest()}"

    def read(self, row: int) -> Array:
        """Return an image, uint8 [C, H, W], from the file of decoded images or decoded.

        Raises:
            RunError: its file has changed or cannot be read, or the decoded image cannot be written.
            ConfigError: it cannot be read as an image, or has 16 bits.
        """
        rows = _open_rows(os.getpid(), self.path, self.shape)
        content, checksum, known = rows.record(row)
        if known == KEPT and (kept := rows.read(row, checksum)) is not None:
            self.table.require_unchanged(row)
            return kept
        encoded = self.table.read(row)
        digest = int.from_bytes(blake2b(encoded, digest_size=8).digest(), "little")
        if known and digest != content:  # though it has the same size and time
            raise changed(self.table.path(row))
        x = self._decode(row, encoded)
        if (row + 1) * self.kept // len(self.table) > row * self.kept // len(self.table):
            rows.write(row, digest, x)
        elif not known:
            rows.note(row, digest)
        return x

    def _decode(self, row: int, encoded: bytes) -> Array:
        path = self.table.path(row)
        x, found = decode(EncodedImage(str(path), encoded, bool(self.stored[row])), self.look, None)
        if x is None or found.largest is not None:
            problem = f"found disk, and {path} has 16 bits, which depend on the largest value of all images"
            raise ConfigError(f"dataset.load: {problem}, allowed: memory; or images of 8 bits")
        return np.ascontiguousarray(x)


@cache
def _open_rows(process: int, path: Path, shape: tuple[int, ...]) -> DecodedRows:
    """Return the open file of decoded images of a process: a forked one opens it again."""
    return DecodedRows(path, shape)


def forget_open_files() -> None:
    """Open the files of decoded images again when they are needed, as after their folder was deleted."""
    _open_rows.cache_clear()


class ImagesOnDisk(Unread):
    """Images of one or more stores, as an array uint8 [N, C, H, W] that is decoded where it is indexed.

    Args:
        stores: the stores, of images of the same shape.
        rows: which images of all stores, one after the other: int64 [N].
    """

    def __init__(self, stores: Sequence[ImageStore], rows: npt.NDArray[np.int64]) -> None:
        self._stores, self._rows = tuple(stores), rows
        self._firsts = np.cumsum([0, *(len(store.table) for store in stores)])

    @property
    def shape(self) -> tuple[int, ...]:
        """[N, C, H, W]."""
        return len(self._rows), *self._stores[0].shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """uint8."""
        return np.dtype(np.uint8)

    @property
    def nbytes(self) -> int:
        """The bytes of the table."""
        return self._rows.nbytes + sum(store.table.nbytes for store in self._stores)

    @cached_property
    def digest(self) -> str:
        """A digest of the files' paths, sizes and times, of what the images become, and of the rows."""
        digest = blake2b(" ".join(store.identity for store in self._stores).encode(), digest_size=32)
        digest.update(np.ascontiguousarray(self._rows).data)
        return digest.hexdigest()

    @property
    def place(self) -> str:
        """The paths of each store's first image."""
        return " ".join(store.table.place for store in self._stores)

    def take(self, rows: Array) -> ImagesOnDisk:
        """Return these rows (numbers or a mask)."""
        return ImagesOnDisk(self._stores, self._rows[rows])

    def join(self, others: Sequence[Unread]) -> ImagesOnDisk:
        """Return these images and then those of others of the same shape."""
        stores, rows, first = [*self._stores], [self._rows], int(self._firsts[-1])
        for other in others:
            assert isinstance(other, ImagesOnDisk)
            stores += other._stores
            rows.append(other._rows + first)
            first += int(other._firsts[-1])
        return ImagesOnDisk(stores, np.concatenate(rows))

    def read_each(self, parts: Sequence[npt.NDArray[np.int64]]) -> Iterator[Array]:
        """Yield the images of consecutive parts of rows, and read following parts ahead; see `Unread`."""
        pool, waiting, ahead = _pool(os.getpid()), deque[list[Future[Array]]](), 0
        most, following = max(1, AHEAD // int(np.prod(self.shape[1:]))), iter(parts)
        try:
            for part in parts:
                while not waiting or ahead < most:
                    coming = next(following, None)
                    if coming is None:
                        break
                    waiting.append([pool.submit(self._read, int(row)) for row in coming])
                    ahead += len(coming)
                futures = waiting.popleft()
                x = np.empty((len(part), *self.shape[1:]), np.uint8)
                for place, future in enumerate(futures):  # this thread reads what no other one has begun to read
                    x[place] = self._read(int(part[place])) if future.cancel() else future.result()
                ahead -= len(part)
                yield x
        finally:
            for future in (future for futures in waiting for future in futures):
                future.cancel()

    def path(self, row: int) -> Path:
        """Return the file of an image."""
        store, place = self._locate(row)
        return store.table.path(place)

    def _read(self, row: int) -> Array:
        store, place = self._locate(row)
        return store.read(place)

    def _locate(self, row: int) -> tuple[ImageStore, int]:
        """Return an image's store and its row there."""
        place = int(self._rows[row])
        number = int(np.searchsorted(self._firsts, place, side="right")) - 1
        return self._stores[number], place - int(self._firsts[number])


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Return the threads of a process that read images. Pillow releases the GIL."""
    warnings.filterwarnings("ignore", module=r"PIL\.")  # of palettes, EXIF data and large images
    return ThreadPoolExecutor(max(1, min(MOST_THREADS, int(this_machine().cpus))), initializer=_yield_to_others)


def _yield_to_others() -> None:
    with suppress(AttributeError, OSError):  # only Linux gives threads priorities of their own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def open_store(
    table: ImageTable, look: Look, stored: npt.NDArray[np.bool_], root: Path, gib: float | None
) -> ImageStore:
    """Return the store of these images with its file below `root`.

    Args:
        table: the files.
        look: what they become.
        stored: see `ImageStore.stored`.
        root: the folder of the datasets.
        gib: the GiB of decoded images that are kept; None is half of what is free on that disk.

    Raises:
        ConfigError: the file cannot be made.
    """
    # with the place: files of an archive may all have the same time, and those of two folders the same sizes
    known = f"{table.place} {table.digest} {look} {blake2b(stored.data).hexdigest()} {PIL.__version__} {VERSION}"
    path = root / FOLDER / blake2b(os.fsencode(known), digest_size=16).hexdigest()
    each = (1 if look.grey else 3) * look.size**2
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_suffix(".pixels")
        there = 512 * file.stat().st_blocks if file.exists() else 0
        room = there + shutil.disk_usage(path.parent).free // 2 if gib is None else int(gib * GIB)
    except OSError as error:
        problem = f"found disk, but {path.parent} cannot be written to ({error.strerror or error})"
        raise ConfigError(f"dataset.load: {problem}, allowed: a folder of data (dataset.root) with room") from error
    return ImageStore(table, look, stored, path, min(len(table), room // each))
