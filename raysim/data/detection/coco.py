"""Images and boxes in COCO's layout."""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le, MinLen, doc

from raysim.config.error_text import shorten
from raysim.config.signature import takes_keys_of
from raysim.data.dataset import Dataset, MissingData
from raysim.data.decoding import LoadKeys
from raysim.data.detection.annotated import AnnotatedImage, label_of, number_names, read_dataset
from raysim.data.detection.box_rows import BoxesOfImage, BoxRows, Edges, Row
from raysim.data.detection.coco_file import CocoFile, Id
from raysim.data.image_files import Listing, describe_files, find_images
from raysim.data.paths import require_folder
from raysim.data.pictures import WHITE, Background
from raysim.system.errors import ConfigError
from raysim.system.home import expand

LONGEST = 500  # characters of a path in a message


@takes_keys_of(LoadKeys, before="load")
def coco(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the folder of images and annotations; relative, it starts at dataset.root")],
    train: Annotated[
        str, doc("the folder of the images to train on, and the end of their annotations' name")
    ] = "train2017",
    test: Annotated[str, doc("the folder of the images to test on")] = "val2017",
    classes: Annotated[
        Annotated[tuple[str, ...], MinLen(1)] | None, doc("the classes that are used; null is all categories")
    ] = None,
    size: Annotated[int, Ge(8), Le(4096), doc("height and width of the resized images, for any proportions")] = 128,
    boxes: BoxesOfImage = 64,
    background: Background = WHITE,
    **keys: Any,
) -> Dataset:
    """Images with boxes in COCO's layout: TRAIN/*.jpg and annotations/instances_TRAIN.json (Lin et al., ECCV 2014).

    Classes are numbered in the order of `classes`, or of the categories' ids in the training file. Left out are boxes
    of other categories, those of crowds (iscrowd) and those of width or height 0; `check` shows how many. An annotation
    without a bbox has the box around its polygons. Images may be resized versions of those that the file names, with
    their proportions. Pillow's bilinear filter resizes the images.

    Raises:
        MissingData: a folder, a file or an image is missing.
        ConfigError: a file is damaged, or an id or a name is given twice. An image has other proportions. A box is
            negative, not in its image (see `boxes`), or of an unknown category. All boxes are in the first pixel.
    """
    folder, found = require_folder(root / expand("dataset.path", path)), BoxRows(boxes)
    files = [
        CocoFile(f"dataset.{key}", folder / "annotations" / f"instances_{part}.json")
        for key, part in (("train", train), ("test", test))
    ]
    names = _choose_names(files[0], classes)
    numbers = number_names(names, "dataset.classes")
    training, testing = (
        _images(file, folder / part, numbers, found) for file, part in zip(files, (train, test), strict=True)
    )
    dataset = read_dataset(
        training, testing, names, size=size, boxes=found, background=background, root=root, keys=LoadKeys(**keys)
    )
    listings = [_list_named(file, folder / part) for file, part in zip(files, (train, test), strict=True)]
    return replace(dataset, notes=(*describe_files(listings), *dataset.notes))


def _list_named(file: CocoFile, folder: Path) -> Listing:
    """Return the images that a file names, and count those in their folder that it does not name."""
    named = [Path(os.path.normpath(folder / image.file_name)) for image in file.images.values()]
    listing = find_images(folder) if folder.is_dir() else Listing()
    unnamed = len({Path(os.path.normpath(image)) for image in listing.images} - {*named})
    return Listing(named, listing.others + Counter({f"that {file.name} does not name": unnamed}))


def _choose_names(file: CocoFile, classes: Sequence[str] | None) -> Sequence[str]:
    """Return the names of the classes that are used, in order: those given, or all in the order of their ids."""
    every = [file.categories[one] for one in sorted(file.categories, key=_by_value)]
    known = {name: number for number, name in enumerate(every)}
    for name in classes or ():
        label_of(name, known, "dataset.classes")
    return classes or every


def _by_value(one: Id) -> tuple[bool, int, str]:
    """Order ids by their value; texts that are no numbers follow."""
    is_number = isinstance(one, int) or (one.isascii() and one.isdecimal() and len(one) < 20)
    return not is_number, int(one) if is_number else 0, str(one)


def _images(file: CocoFile, folder: Path, numbers: Mapping[str, int], found: BoxRows) -> list[AnnotatedImage]:
    """Return the images in the order of the file."""
    rows: dict[Id, list[Row]] = {}
    farthest = 0.0
    for one in file.objects():
        label = numbers.get(file.categories[one.category])
        if one.is_crowd:
            found.leave_out("of crowds")
            continue
        if label is None:
            found.leave_out("of other categories")
            continue
        image = file.images[one.image]
        left, top, right, bottom = edges = found.around(one.points) if one.box is None else _edges(*one.box)
        farthest = max(farthest, right, bottom)
        if left == right or top == bottom:  # train2017 has two such boxes
            found.leave_out("without area")
        elif row := found.row(label, edges, (image.width, image.height), one.where):
            rows.setdefault(one.image, []).append(row)
    if rows and farthest <= 1:
        allowed = (
            "boxes in pixels; multiply them by the width and the height of their image if they are fractions of it"
        )
        raise ConfigError(f"{file.key}: {file.name}: found boxes up to {farthest:g} only, allowed: {allowed}")
    images = []
    for number, (key, image) in enumerate(file.images.items()):
        path, where = folder / image.file_name, file.place(number)
        if not _is_file(path):
            missing = shorten(str(path), LONGEST)
            raise MissingData(f"dataset.path: there is no image {missing}, which {where} names")
        images.append(AnnotatedImage(path, rows.get(key, ()), where, (image.width, image.height)))
    return images


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def _edges(left: float, top: float, width: float, height: float) -> Edges:
    return left, top, left + width, top + height
