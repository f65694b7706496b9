"""Decode all images of a dataset into arrays, by one rule for orientation, transparency and bits."""

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, doc

from raysim.data.dataset import Array, Dataset, Split
from raysim.data.image_table import ImageNames, join_names, read_table
from raysim.data.images_on_disk import ImagesOnDisk, open_store
from raysim.data.pictures import COLORS, DEPTHS, EncodedImage, Findings, Look, decode
from raysim.system.capacity import GIB, fits_into_memory, require_memory
from raysim.system.errors import ConfigError

AT_ONCE = 1000  # images queued for the threads

Labelled = Sequence[tuple[Path, int]]
"""Pairs of an image file and its label, in order."""

Color = Literal["white", "black"] | tuple[int, int, int]
"""The key `background`, which `pictures.Background` describes."""


@dataclass(frozen=True, kw_only=True)
class LoadKeys:
    """The keys of datasets of image files: whether all images are decoded at once."""

    load: Annotated[
        Literal["memory", "disk"] | None,
        doc(
            "whether all images are decoded into memory at the start, or each one as it is first needed, then read "
            "from a file of decoded images; null is memory if they fit into half of it"
        ),
    ] = None
    decoded_gib: Annotated[
        Annotated[float, Ge(0)] | None,
        doc(
            "the GiB of that file, below dataset.root; further images are decoded each time; null is half of the "
            "disk's free space"
        ),
    ] = None

    def on_disk(self, nbytes: int) -> bool:
        """Return whether images of this size, decoded, are read as they are needed."""
        return self.load == "disk" or (self.load is None and not fits_into_memory(nbytes))


IN_MEMORY = LoadKeys(load="memory")


@dataclass(frozen=True, eq=False)
class Pixels:
    """The images of a dataset as uint8 [N, 1 or 3, size, size], and its notes and doubts."""

    train: Array
    test: Array
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


def decode_dataset(
    train: Labelled,
    test: Labelled,
    classes: int,
    names: tuple[str, ...] | None,
    *,
    size: int,
    grey: bool,
    background: Color,
    stored: Collection[Path] = (),
    root: Path = Path(),
    keys: LoadKeys = IN_MEMORY,
) -> Dataset:
    """Return a dataset of image files. Those in `stored` are not turned upright.

    `keys` say whether they are decoded here, as `decode_pictures` does, or as they are needed. Then `root` is the
    folder of the datasets, for the file of decoded images.

    Raises:
        ConfigError: see `decode_pictures`. Of images that are decoded later, one is absent, or there can be no file.
    """
    if keys.on_disk((len(train) + len(test)) * size * size * (1 if grey else 3)):
        return _leave_on_disk(train, test, classes, names, Look(size, grey, _color(background)), stored, root, keys)
    pictures = [[EncodedImage(str(path), path, path in stored) for path, _ in images] for images in (train, test)]
    pixels = decode_pictures(*pictures, size=size, grey=grey, background=background)
    y = [np.array([label for _, label in images], np.int64) for images in (train, test)]
    splits = Split(pixels.train, y[0]), Split(pixels.test, y[1])
    return Dataset(*splits, classes, names, notes=pixels.notes, doubts=pixels.doubts)


def _color(background: Color) -> tuple[int, int, int]:
    return COLORS[background] if isinstance(background, str) else background


def _leave_on_disk(
    train: Labelled,
    test: Labelled,
    classes: int,
    names: tuple[str, ...] | None,
    look: Look,
    stored: Collection[Path],
    root: Path,
    keys: LoadKeys,
) -> Dataset:
    """Return a dataset of images that are decoded as they are needed."""
    every = [*train, *test]
    as_stored = np.array([path in stored for path, _ in every], bool) if stored else np.zeros(len(every), bool)
    images, labels = join_names(str(path) for path, _ in every), np.array([label for _, label in every], np.int64)
    return open_images(images, labels, len(train), classes, names, look, as_stored, root, keys)


def open_images(
    images: ImageNames,
    labels: npt.NDArray[np.int64],
    train: int,
    classes: int,
    names: tuple[str, ...] | None,
    look: Look,
    as_stored: npt.NDArray[np.bool_],
    root: Path,
    keys: LoadKeys,
) -> Dataset:
    """Return a dataset of images that are decoded as they are needed. The first `train` of them are for training.

    Raises:
        ConfigError: an image is absent, or there can be no file of decoded images.
    """
    table = read_table(images)
    store = open_store(table, look, as_stored, root, keys.decoded_gib)
    rows = np.arange(len(table))
    splits = [Split(ImagesOnDisk([store], rows[part]), labels[part]) for part in (slice(train), slice(train, None))]
    whole = len(table) * int(np.prod(store.shape)) / GIB
    kept = "all of them" if store.kept == len(table) else f"{store.kept:,} of them"
    note = f"images are decoded as they are needed (load: disk), {whole:,.1f} GiB; {kept} stay in {store.path}.pixels"
    return Dataset(splits[0], splits[1], classes, names, notes=(note,))


def decode_pictures(
    train: Sequence[EncodedImage], test: Sequence[EncodedImage], *, size: int, grey: bool, background: Color
) -> Pixels:
    """Return images as uint8 [N, channels, size, size], RGB or gray, resized by Pillow's bilinear filter.

    Images are turned upright as EXIF's orientation says. Transparent pixels show the background. Values of 16 bits are
    divided by 2**(bits - 8): `bits` is the smallest of 8, 10, 12, 14 and 16 that holds the largest training value.

    Raises:
        ConfigError: an image cannot be read, or the images do not fit into memory. Also a color image of 16 bits in a
            dataset of fewer bits: Pillow keeps the upper 8 of 16 only.
    """
    count = len(train) + len(test)
    require_memory(count * size * size * (1 if grey else 3), "dataset.size", f"{size} for {count} images")
    look = Look(size, grey, _color(background))
    x, y = (np.empty((len(part), 1 if grey else 3, size, size), np.uint8) for part in (train, test))

    def name_of(number: int) -> str:
        return train[number].name if number < len(train) else test[number - len(train)].name

    # Pillow warns of palettes, EXIF data and large images. catch_warnings is not thread-safe: one is around all threads
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor() as pool:
        of_train, of_test = (
            _fill(pool, part, range(len(part)), look, None, pixels) for part, pixels in ((train, x), (test, y))
        )
        bits = _bits_of(of_train) or _bits_of(of_test)
        if bits is not None:  # the largest value is known now
            _refuse_dark_colors([*of_train.values(), *of_test.values()], bits, name_of)
            for part, found, pixels in ((train, of_train, x), (test, of_test, y)):
                deep = [row for row in found if found[row].largest is not None]
                found |= _fill(pool, part, deep, look, bits, pixels)

    every = [*of_train.values(), *of_test.values()]
    notes = tuple(_notes(every, bits, max((one.largest or 0 for one in of_train.values()), default=0)))
    return Pixels(x, y, notes, tuple(_doubts(every, bits, name_of)))


def _fill(
    pool: ThreadPoolExecutor,
    pictures: Sequence[EncodedImage],
    rows: Sequence[int],
    look: Look,
    bits: int | None,
    x: Array,
) -> dict[int, Findings]:
    """Write the pixels of some rows into x, in threads, as Pillow releases the GIL. Return what each image met."""

    def fill(row: int) -> Findings:
        pixels, found = decode(pictures[row], look, bits)
        if pixels is not None:
            x[row] = pixels
        return found

    found: dict[int, Findings] = {}
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        found |= dict(zip(some, pool.map(fill, some), strict=True))
    return found


def _bits_of(found: Mapping[int, Findings]) -> int | None:
    """Return how many bits hold the largest value of the images of 16 bits, or None without such images."""
    values = [one.largest for one in found.values() if one.largest is not None]
    return next(bits for bits in DEPTHS if max(values) < 2**bits) if values else None


def _notes(found: Sequence[Findings], bits: int | None, largest: int) -> Iterator[str]:
    """Yield what was changed of the images. `largest` is the largest training value of those with 16 bits."""
    counts = (
        (sum(one.turned for one in found), "turned {} upright, as their EXIF data says"),
        (sum(one.blended for one in found), "put {} with transparent pixels on dataset.background"),
        (sum(one.has_frames for one in found), "used the first frame or page of {} with several"),
    )
    yield from (phrase.format(_images(count)) for count, phrase in counts if count)
    if bits is not None:
        deep = sum(one.largest is not None for one in found)
        holds = f"{bits} bits hold the largest {f'training value, {largest:,}' if largest else 'value'}"
        yield f"divided {_images(deep)} of 16 bits by {2 ** (bits - 8)}: {holds}"


def _doubts(found: Sequence[Findings], bits: int | None, name_of: Callable[[int], str]) -> Iterator[str]:
    """Yield warnings of images of a single color, and of test images that are brighter than training images."""
    single = [number for number, one in enumerate(found) if one.is_single]
    if single:
        which = f"{_images(len(single))} of {len(found):,}, the first {name_of(single[0])}"
        yield f"found a single color in {which}; look at it, and remove it if it is damaged"
    bright = [] if bits is None else [number for number, one in enumerate(found) if (one.largest or 0) >= 2**bits]
    if bits is not None and bright:
        which = f"{_images(len(bright))} for testing, the first {name_of(bright[0])}"
        yield f"found values of {2**bits:,} and more in {which}; they become white, as training images have none"


def _refuse_dark_colors(found: Sequence[Findings], bits: int, name_of: Callable[[int], str]) -> None:
    """Refuse colors of 16 bits in a dataset of fewer: too few of Pillow's 8 bits would be left."""
    deep = next((number for number, one in enumerate(found) if one.is_deep_color), None)
    if deep is not None and bits < 16:
        problem = f"{name_of(deep)} has colors of 16 bits, and the largest value of the dataset needs {bits} only"
        raise ConfigError(
            f"dataset.path: {problem}, allowed: colors of 8 bits; divide them by {2 ** (bits - 8)} and save them again"
        )


def _images(count: int) -> str:
    return f"{count:,} image{'' if count == 1 else 's'}"
