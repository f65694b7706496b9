"""Annotated images as a dataset: files are compared with their annotations, and images decoded and resized."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from raysim.config.error_text import nearest, shorten, show
from raysim.data.class_order import describe_classes
from raysim.data.dataset import Dataset
from raysim.data.decoding import Color, LoadKeys, decode_dataset
from raysim.data.detection.box_rows import BoxRows, Row
from raysim.data.detection.proportions import is_stored_size
from raysim.data.pictures import read_sizes
from raysim.objectives.boxes import ROW, pad_boxes
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError
from raysim.system.progress import tell_progress

MOST_COMPARED = 10_000  # names that a wrong one is compared with, for the advice
LISTED = 36  # names in a message
OFTEN = 2**14  # images between two reports of progress


@dataclass(frozen=True)
class AnnotatedImage:
    """An image file and its boxes."""

    path: Path
    rows: Sequence[Row]
    where: str
    """The file or the entry of its boxes, for errors."""
    size: tuple[float, float] | None = None
    """Width and height by the annotations, which are compared with the file's; None if they name no size."""
    has_file: bool = True
    """Whether there is a file or an entry of its boxes. Images without one have no boxes, either."""


def number_names(names: Sequence[str], where: str) -> dict[str, int]:
    """Return the number of each class by its name. Raises ConfigError for a name that is given twice."""
    numbers: dict[str, int] = {}
    for number, name in enumerate(names):
        if numbers.setdefault(name, number) != number:
            raise ConfigError(f"{where}: found the class {show(name)} twice, allowed: each name once")
    return numbers


def label_of(name: object, numbers: Mapping[str, int], where: str) -> int:
    """Return the number of a class by its name. Raises ConfigError for an unknown one."""
    if isinstance(name, str) and name in numbers:
        return numbers[name]
    near = nearest(name, numbers) if len(numbers) <= MOST_COMPARED else ""
    raise ConfigError(f"{where}: found the class {show(name)}, allowed: {list_some(numbers)}{near}")


def list_some(names: Collection[object]) -> str:
    """Return names for a message: all of them, or the first ones where they are many."""
    first = ", ".join(shorten(str(name), 60) for name in islice(names, LISTED))
    return first + ", ..." * (len(names) > LISTED)


def read_dataset(
    train: Sequence[AnnotatedImage],
    test: Sequence[AnnotatedImage],
    names: Sequence[str],
    *,
    size: int,
    boxes: BoxRows,
    background: Color,
    root: Path,
    keys: LoadKeys,
) -> Dataset:
    """Return the dataset of annotated images, RGB uint8 [N, 3, size, size], with at most `boxes.keys.most` boxes each.

    Raises:
        ConfigError: there are no images or no boxes. An image has too many boxes, cannot be read, or has other
            proportions than its annotations.
    """
    most, count = boxes.keys.most, len(train) + len(test)
    for part, images in (("train", train), ("test", test)):
        if not any(image.rows for image in images):
            raise ConfigError(f"dataset.{part}: found {len(images)} images without a box, allowed: at least one box")
        for image in images:
            if len(image.rows) > most:
                problem = f"found {len(image.rows)} boxes of one image, allowed: at most {most} (dataset.boxes)"
                raise ConfigError(f"{image.where}: {problem}")
    require_memory(count * most * ROW * 4, "dataset.boxes", f"{most} for {count} images")
    stored = [path for images in (train, test) for path in _read_as_stored(images)]
    of_train, of_test = ([(image.path, 0) for image in images] for images in (train, test))
    dataset = decode_dataset(
        of_train,
        of_test,
        len(names),
        tuple(names),
        size=size,
        grey=False,
        background=background,
        stored=frozenset(stored),
        root=root,
        keys=keys,
    )
    splits = [
        replace(split, y=pad_boxes([image.rows for image in images], most))
        for split, images in ((dataset.train, train), (dataset.test, test))
    ]
    notes = [describe_classes(names), *boxes.notes(), *_without_boxes("train", train), *_without_boxes("test", test)]
    if stored:
        notes.append(
            f"{len(stored):,} images are not turned upright, as the sizes in their annotations are the stored ones"
        )
    return replace(dataset, train=splits[0], test=splits[1], notes=(*dataset.notes, *notes))


def _without_boxes(part: str, images: Sequence[AnnotatedImage]) -> Iterator[str]:
    count, unlabeled = sum(not image.rows for image in images), sum(not image.has_file for image in images)
    if count:
        files = f", {unlabeled:,} of these no file of boxes" if unlabeled else ""
        yield f"dataset.{part}: {count:,} of {len(images):,} images have no boxes{files}"


def _read_as_stored(images: Sequence[AnnotatedImage]) -> Iterator[Path]:
    """Yield the images of which boxes belong to the pixels as stored, and refuse images of other proportions."""
    for number, image in enumerate(images):
        if number % OFTEN == OFTEN - 1:
            tell_progress(f"comparing sizes: {number + 1:,} of {len(images):,} images", number / len(images))
        if image.size is None:
            continue
        sizes = read_sizes(image.path)
        is_stored = is_stored_size(image.size, sizes.stored, sizes.upright)
        if is_stored is None:
            found = " x ".join(f"{side:g}" for side in image.size)
            allowed = " or ".join(
                f"{width} x {height}" for width, height in dict.fromkeys((sizes.upright, sizes.stored))
            )
            raise ConfigError(
                f"{image.where}: found a size of {found}, allowed: the proportions of {image.path}, {allowed}"
            )
        if is_stored:
            yield image.path
