"""A data set in an .npz file of the user's own."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from raysim.data.dataset import Array, Dataset, Split, channels_first
from raysim.system.errors import ConfigError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
DAMAGE = (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error)


def npz(
    root: Path,
    download: bool,
    *,
    path: str,  # the file; a relative path starts at dataset.root
) -> Dataset:
    """Any .npz file (`path`, below the root) with x_train, y_train, x_test, y_test; classes are 0..largest label.

    x: [N, H, W] or [N, H, W, C] images, stored as C x H x W, or [N, D] features; uint8, or floats (kept as float32).
    y: integers [N]. Nothing pickled is read.

    Raises:
        ConfigError: no such file, not a sound .npz, an array missing, or arrays of another kind.
    """
    file = root / Path(path).expanduser()
    arrays = _read(file)
    splits = [
        Split(_samples(arrays[f"x_{part}"], f"{file}: x_{part}"), _labels(arrays[f"y_{part}"], f"{file}: y_{part}"))
        for part in ("train", "test")
    ]
    largest = max((int(split.y.max()) for split in splits if len(split)), default=0)
    return Dataset(splits[0], splits[1], classes=max(largest, 0) + 1)


def _read(file: Path) -> dict[str, Array]:
    if not file.is_file():
        raise ConfigError(f"dataset.path: there is no file {file}; a relative path starts at dataset.root")
    try:
        with file.open("rb") as stream:  # opened here: np.load leaves a file open that it finds to be broken
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ConfigError(f"{file}: holds one bare array; save a .npz with {', '.join(ARRAYS)}")
            absent = [name for name in ARRAYS if name not in archive.files]
            if absent:
                raise ConfigError(
                    f"{file}: no array {', '.join(absent)} (it has {', '.join(archive.files) or 'none'}); "
                    f"needed are {', '.join(ARRAYS)}"
                )
            return {name: archive[name] for name in ARRAYS}
    except DAMAGE as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(f"{file}: not a sound .npz of plain arrays ({reason}); save it again") from error


def _samples(x: Array, what: str) -> Array:
    if x.dtype != np.uint8 and not np.issubdtype(x.dtype, np.floating):
        raise ConfigError(f"{what} is {x.dtype}; save it as uint8 (0..255) or as floats")
    if x.ndim not in (2, 3, 4):
        raise ConfigError(f"{what} has shape {x.shape}; save [N, H, W], [N, H, W, C] or [N, D]")
    return channels_first(x if x.dtype == np.uint8 else x.astype(np.float32))


def _labels(y: Array, what: str) -> Array:
    if not np.issubdtype(y.dtype, np.integer) or y.ndim != 1:
        raise ConfigError(f"{what} is {y.dtype} of shape {y.shape}; save integers of shape [N]")
    return y.astype(np.int64)
