"""The list of a folder's images in a file, so that a folder of a million images is not searched at every start.

The list is used while no folder has changed. Files are looked at in any case: their sizes and times are those of now.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.data.image_table import ImageNames
from raysim.system.version import VERSION

DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)
SETTLED = 2 * 10**9  # nanoseconds since a folder's last change, after which another one has another time


@dataclass(frozen=True, eq=False)
class ImageIndex:
    """The images of a folder: those for training, then those for testing."""

    images: ImageNames
    labels: npt.NDArray[np.int64]
    train: int
    """The number of images for training."""
    names: tuple[str, ...]
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


def folder_times(folder: Path) -> dict[str, int]:
    """Return when each folder at and below this one last changed, by its path, in nanoseconds. Links are followed."""
    found, seen = dict[str, int](), set[tuple[int, int]]()
    for place, below, _ in os.walk(folder, followlinks=True):
        status = os.stat(place)
        if (status.st_dev, status.st_ino) in seen:
            below.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        found[place] = status.st_mtime_ns
    return found


def index_path(root: Path, folder: Path, keys: Mapping[str, Any]) -> Path:
    """Return the file of a folder's list, which depends on the keys by which its images are chosen."""
    known = json.dumps([str(folder.absolute()), dict(keys), VERSION])
    return root / f"{blake2b(known.encode(), digest_size=16).hexdigest()}.index.npz"


def read_index(path: Path) -> ImageIndex | None:
    """Return a list; None if there is none, it is damaged, or a folder has changed since."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:  # a damaged file would stay open
            about = json.loads(arrays["about"].tobytes())
            if any(os.stat(place).st_mtime_ns != changed for place, changed in about["folders"].items()):
                return None
            images = ImageNames(arrays["names"], arrays["ends"])
            texts = [tuple(map(str, about[key])) for key in ("names", "notes", "doubts")]
            return ImageIndex(images, arrays["labels"], int(about["train"]), *texts)
    except DAMAGE:
        return None


def write_index(path: Path, index: ImageIndex, folders: Mapping[str, int]) -> None:
    """Write a list, whole or not at all. None is written where that is impossible, or a folder has only now changed.

    Args:
        path: the file.
        index: the list.
        folders: `folder_times` from before the folders were read.
    """
    if max(folders.values()) > time.time_ns() - SETTLED:
        return
    about = {key: getattr(index, key) for key in ("train", "names", "notes", "doubts")} | {"folders": dict(folders)}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=".index-", suffix=".npz", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                described = np.frombuffer(json.dumps(about).encode(), np.uint8)
                images = index.images
                np.savez(file, about=described, labels=index.labels, names=images.names, ends=images.ends)
            os.chmod(part, 0o644)
            os.replace(part, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(part)
