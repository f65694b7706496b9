"""Find image files in a folder and decode them into arrays, for datasets distributed as images."""

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from raysim.data.dataset import Array, Dataset, Split, require_memory
from raysim.system.errors import ConfigError

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # whatever the suffix; others start other programs
AT_ONCE = 1000  # images queued for the threads
IMAGE_DAMAGE = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    MemoryError,
    Image.DecompressionBombError,
)  # what Pillow raises

Labelled = Sequence[tuple[Path, int]]
"""Pairs of an image file and its label, in order."""


def list_entries(folder: Path) -> list[Path]:
    """Return the files and folders in a folder that are not hidden, sorted by name.

    Raises:
        ConfigError: one is neither, such as a pipe or a link to nothing.
    """
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for entry in entries:
        if not entry.is_file() and not entry.is_dir():
            found = "a link to nothing" if entry.is_symlink() and not entry.exists() else "a pipe or a device"
            raise ConfigError(f"dataset.path: {entry} is {found}, allowed: files and folders; replace or remove it")
    return entries


def list_images(folder: Path) -> list[Path]:
    """Return the images of one class, sorted by name.

    Raises:
        ConfigError: the folder has no images; also as `list_entries`.
    """
    entries = list_entries(folder)
    images = [entry for entry in entries if entry.suffix.lower() in SUFFIXES and entry.is_file()]
    if not images:
        below = next((entry for entry in entries if entry.is_dir()), None)
        hint = "" if below is None else f"; it holds the folder {below.name}: is {folder} the path that was meant?"
        raise ConfigError(
            f"dataset.path: {folder} holds no images, allowed: at least one in every class's folder{hint}"
        )
    return images


def decode_dataset(
    train: Labelled, test: Labelled, classes: int, names: tuple[str, ...] | None, *, size: int, grey: bool
) -> Dataset:
    """Return a dataset of images as uint8 [N, channels, size, size], RGB or gray, resized by Pillow's bilinear filter.

    Raises:
        ConfigError: an image cannot be read, or the images do not fit into memory.
    """
    count = len(train) + len(test)
    require_memory(count * size * size * (1 if grey else 3), "dataset.size", f"{size} for {count} images")
    return Dataset(_decode_all(train, size, grey), _decode_all(test, size, grey), classes, names)


def _decode_all(images: Labelled, size: int, grey: bool) -> Split:
    """Decode all images in threads: Pillow releases the GIL while it decodes and resizes."""
    paths = [path for path, _ in images]
    x = np.empty((len(paths), 1 if grey else 3, size, size), np.uint8)

    def fill(row: int) -> None:
        x[row] = _decode(paths[row], size, grey)

    # Pillow warns of palettes, EXIF data and large images. catch_warnings is not thread-safe: one is around all threads
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor() as pool:
        for start in range(0, len(paths), AT_ONCE):
            list(pool.map(fill, range(start, min(start + AT_ONCE, len(paths)))))
    return Split(x, np.array([label for _, label in images], np.int64))


def resize(image: Image.Image, size: int, grey: bool) -> Image.Image:
    """Return a square image in grey or RGB, of 8 bits. Images of 16 bits are divided by 256; Pillow would clip them.

    Raises:
        ValueError: the pixels are of 32 bits, and their largest value is unknown.
    """
    if image.mode in ("I", "F"):
        raise ValueError(f"found pixels of 32 bits (mode {image.mode}), allowed: 8 or 16 bits")
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("L" if grey else "RGB").resize((size, size), Image.Resampling.BILINEAR)


def _decode(path: Path, size: int, grey: bool) -> Array:
    """Return an image as uint8 [channels, size, size]."""
    try:
        with Image.open(path, formats=FORMATS) as image:
            pixels = np.asarray(resize(image, size, grey))
    except IMAGE_DAMAGE as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ConfigError(
            f"dataset.path: {path} cannot be read as an image ({reason}); replace or remove it"
        ) from error
    return pixels[None] if grey else pixels.transpose(2, 0, 1)
