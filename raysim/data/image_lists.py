"""Image datasets with a split in text files: lists of images, and Tiny-ImageNet."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le, doc

from raysim.config.error_text import show
from raysim.config.signature import takes_keys_of
from raysim.data.class_order import describe_classes
from raysim.data.columns import as_column
from raysim.data.dataset import Array, Dataset, Declared, MissingData
from raysim.data.decoding import Labelled, LoadKeys, decode_dataset
from raysim.data.image_files import list_images
from raysim.data.paths import RELATIVE, require_file
from raysim.data.pictures import WHITE, Background
from raysim.system.errors import ConfigError
from raysim.system.home import expand

LINE = r"(\S.*)\s(\d{1,9})"  # a path, which may have spaces, and a label
FIELD = r"\s(\S+)"
TINY_IMAGENET = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"


@dataclass(frozen=True)
class _Listed:
    """A list of images: its config key, its file, and by line the image and its label, further fields, and a number."""

    key: str
    file: Path
    images: list[tuple[Path, int]]
    fields: list[tuple[str, ...]]
    numbers: list[int]


@takes_keys_of(LoadKeys, before="load")
def image_list(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the folder in which the lists' paths begin; relative, it starts at dataset.root")],
    train: Annotated[str, doc("the text file of the images to train on; relative, it starts at dataset.root")],
    test: Annotated[str, doc("the text file of the images to test on; relative, it starts at dataset.root")],
    size: Annotated[int, Ge(1), Le(4096), doc("height and width of the resized images, for any proportions")] = 32,
    grey: Annotated[bool, doc("whether the images become grey; else RGB")] = False,
    background: Background = WHITE,
    first_label: Annotated[int, Ge(0), doc("the first class's label in the lists: 0 in DomainNet's, 1 in PACS's")] = 0,
    client_ids: Annotated[
        bool, doc("whether lines have a third column: the client id of the image, without spaces")
    ] = False,
    columns: Annotated[
        tuple[str, ...], doc("the names of further columns in the lines, such as a time, for scenario.kind=by_column")
    ] = (),
    **keys: Any,
) -> Dataset:
    """Images in two text files of lines `path label`: official splits, as of DomainNet, DN4IL and PACS.

    The classes are first_label to the largest label in `train`. Images keep the order of the lists. If the images of
    each class are in a separate folder, the folders name the classes. Pillow's bilinear filter resizes the images
    without keeping proportions. They are stored as uint8, RGB or `grey`. Further `columns` of the lines are numbers,
    dates in ISO 8601 or texts without spaces.

    Raises:
        MissingData: a list or a listed image is missing.
        ConfigError: a line is malformed, a label is in `test` only, or an image is in both lists or has two
            labels. An image cannot be read, or the images do not fit into memory.
    """
    folder, further = root / expand("dataset.path", path), ("a client id",) * client_ids + columns
    lists = [
        _read_list(f"dataset.{part}", root / expand(f"dataset.{part}", name), folder, first_label, further)
        for part, name in (("train", train), ("test", test))
    ]
    training, testing = lists
    _check_lists(training, testing, first_label)
    classes = max(label for _, label in training.images) + 1
    ids = [np.array(listed.fields)[:, 0] if client_ids else None for listed in lists]
    values = {name: _read_column(lists, place, name) for place, name in enumerate(columns, client_ids)}
    declared = Declared(
        (1 if grey else 3, size, size),
        len(training.images),
        len(testing.images),
        classes,
        clients=0 if ids[0] is None else len({*ids[0].tolist()}),
        columns=values,
    )
    for listed in lists:
        _require_images(listed.images, listed.file, declared)
    names = _name_folders(training.images, classes)
    dataset = decode_dataset(
        training.images,
        testing.images,
        classes,
        names,
        size=size,
        grey=grey,
        background=background,
        root=root,
        keys=LoadKeys(**keys),
    )
    training_split, testing_split = (
        replace(split, clients=ids[part], columns={name: parts[part] for name, parts in values.items()})
        for part, split in enumerate((dataset.train, dataset.test))
    )
    notes = (*([describe_classes(names)] if names else []), *dataset.notes)
    return replace(dataset, train=training_split, test=testing_split, notes=notes)


@takes_keys_of(LoadKeys, before="load")
def tiny_imagenet(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the unpacked folder; relative, it starts at dataset.root")] = "tiny-imagenet-200",
    size: Annotated[int, Ge(1), Le(4096), doc("height and width of the resized images")] = 64,
    **keys: Any,
) -> Dataset:
    """Tiny-ImageNet 64 x 64 RGB, 200 classes, 100000 + 10000 images, in its original folder (Le and Yang 2015).

    Label n is line n, from 0, of wnids.txt. Training images are train/WNID/images/*, sorted by name. The test set is
    the validation set: val/images/* in the order of val/val_annotations.txt. test/ has no labels and is not read. The
    first name in words.txt names a class.

    Raises:
        MissingData: a file is missing.
        ConfigError: a line is malformed, an image cannot be read, or the images do not fit into memory.
    """
    folder = root / expand("dataset.path", path)
    declared = Declared((3, size, size), train=100_000, test=10_000, classes=200)
    if not folder.is_dir():
        raise MissingData(f"dataset.path: there is no folder {folder}; {RELATIVE}; unpack {TINY_IMAGENET}", declared)
    wnids = [fields[0] for _, fields in _read_table(folder / "wnids.txt")]
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    train = [(image, labels[wnid]) for wnid in wnids for image in list_images(folder / "train" / wnid / "images")]
    test, annotations = [], folder / "val" / "val_annotations.txt"
    for number, fields in _read_table(annotations):
        if len(fields) < 2 or fields[1] not in labels:
            problem = f"{annotations}, line {number}: found {show(' '.join(fields))}"
            raise ConfigError(f"dataset.path: {problem}, allowed: an image, a tab and a class that is in wnids.txt")
        test.append((folder / "val" / "images" / fields[0], labels[fields[1]]))
    _require_images(test, annotations, declared)
    name_of_wnid = {fields[0]: fields[-1].partition(",")[0] for _, fields in _read_table(folder / "words.txt")}
    names = tuple(name_of_wnid.get(wnid, wnid) for wnid in wnids)
    return decode_dataset(
        train, test, len(wnids), names, size=size, grey=False, background=WHITE, root=root, keys=LoadKeys(**keys)
    )


def _read_list(key: str, file: Path, folder: Path, first_label: int, further: Sequence[str]) -> _Listed:
    """Return the images in a list with their labels from 0, and the `further` fields of the lines."""
    listed = _Listed(key, require_file(key, file), [], [], [])
    pattern = re.compile(LINE + FIELD * len(further), re.ASCII)
    for number, line in _lines(file):
        match = pattern.fullmatch(line)
        if not match or int(match[2]) < first_label:
            allowed = f"a path, a space and a label, a whole number from dataset.first_label ({first_label})"
            more = "".join(f", then a space and {name}" for name in further)
            raise ConfigError(f"{key}: {file}, line {number}: found {show(line)}, allowed: {allowed}{more}")
        listed.images.append((folder / match[1].rstrip(), int(match[2]) - first_label))
        listed.fields.append(match.groups()[2:])
        listed.numbers.append(number)
    if not listed.images:
        raise ConfigError(f"{key}: {file} names no images, allowed: a line for each, a path, a space and a label")
    return listed


def _read_column(lists: Sequence[_Listed], place: int, name: str) -> tuple[Array, Array]:
    """Return the training and the test images' values of a column, the further field at `place`."""
    where = [f"{listed.key}: {listed.file}, line {number}" for listed in lists for number in listed.numbers]
    fields = [fields[place] for listed in lists for fields in listed.fields]
    values = as_column(fields, lambda index: f"{where[index]}, column {show(name)} (dataset.columns)")
    count = len(lists[0].images)
    return values[:count], values[count:]


def _check_lists(training: _Listed, testing: _Listed, first_label: int) -> None:
    """Refuse a first label without images, an image with two labels, one in both lists, and a label of tests only."""
    labels = {label for _, label in training.images}
    trained: dict[str, int] = {}
    for image, label in training.images:
        if trained.setdefault(os.path.normpath(image), label) != label:  # "../" and "./" are other spellings
            both = f"{first_label + trained[os.path.normpath(image)]} and {first_label + label}"
            problem = f"found {image} with the labels {both}, allowed: one label for each image"
            raise ConfigError(f"dataset.train: {problem}")
    if min(labels):
        problem = f"found {first_label}, allowed: {first_label + min(labels)}, the smallest label in {training.file}"
        raise ConfigError(f"dataset.first_label: {problem}")
    for image, label in testing.images:
        if label not in labels:
            problem = f"found {image} with the label {first_label + label}, which no image in {training.file} has"
            raise ConfigError(f"dataset.test: {problem}, allowed: labels that are trained on")
        if os.path.normpath(image) in trained:
            problem = f"found {image}, which is in {training.file} too, allowed: images that are not trained on"
            raise ConfigError(f"dataset.test: {problem}")


def _read_table(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the tab-separated fields of each line."""
    return ((number, [field.strip() for field in line.split("\t")]) for number, line in _lines(file))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each non-empty line. Bytes that are not UTF-8 are escaped."""
    with file.open(encoding="utf-8-sig", errors="surrogateescape") as lines:
        yield from ((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())


def _require_images(images: Labelled, file: Path, declared: Declared) -> None:
    absent = [image for image, _ in images if not os.path.isfile(image)]  # Path.is_file raises an error for some names
    if absent:
        problem = f"{len(absent):,} of the {len(images):,} images in {file} are not there, the first {absent[0]}"
        contents = declared if len(absent) == len(images) else None
        raise MissingData(f"dataset.path: {problem}; {RELATIVE}", contents)


def _name_folders(images: Labelled, classes: int) -> tuple[str, ...] | None:
    """Return the name of each class's folder, or None unless each class has exactly one, not shared."""
    pairs = {(label, image.parent.name) for image, label in images}
    names = dict(pairs)
    if len(pairs) == len({*names.values()}) == classes:
        return tuple(names[label] for label in range(classes))
    return None
