"""Image datasets with a split in text files: lists of images, and Tiny-ImageNet."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le, doc

from raysim.config.error_text import show
from raysim.data.dataset import Dataset, Declared, MissingData
from raysim.data.decoding import Labelled, decode_dataset, list_images
from raysim.system.errors import ConfigError

LINE = re.compile(r"(\S.*)\s(\d{1,9})", re.ASCII)  # a path, which may have spaces, and a label
WITH_CLIENT = re.compile(LINE.pattern + r"\s(\S+)", re.ASCII)
TINY_IMAGENET = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"


def image_list(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the folder in which the lists' paths begin; relative, it starts at dataset.root")],
    train: Annotated[str, doc("the text file of the images to train on; relative, it starts at dataset.root")],
    test: Annotated[str, doc("the text file of the images to test on; relative, it starts at dataset.root")],
    size: Annotated[int, Ge(1), Le(4096), doc("height and width of the resized images, for any proportions")] = 32,
    grey: Annotated[bool, doc("whether the images become grey; else RGB")] = False,
    first_label: Annotated[int, Ge(0), doc("the first class's label in the lists: 0 in DomainNet's, 1 in PACS's")] = 0,
    client_ids: Annotated[
        bool, doc("whether lines end with a third column: the client id of the image, without spaces")
    ] = False,
) -> Dataset:
    """Images in two text files of lines `path label`: official splits, as of DomainNet, DN4IL and PACS.

    The classes are first_label to the largest label in `train`. Images keep the order of the lists. If the images of
    each class are in a separate folder, the folders name the classes. Pillow's bilinear filter resizes the images
    without keeping proportions. They are stored as uint8, RGB or `grey`.

    Raises:
        MissingData: a list or a listed image is missing.
        ConfigError: a line is malformed, a label is in `test` only, or an image is in both lists. An image cannot be
            read, or the images do not fit into memory.
    """
    folder, lists = root / Path(path).expanduser(), [root / Path(name).expanduser() for name in (train, test)]
    training, clients = _read_list("dataset.train", lists[0], folder, first_label, client_ids)
    testing, _ = _read_list("dataset.test", lists[1], folder, first_label, client_ids)
    _check_lists(training, testing, lists, first_label)
    classes = max(label for _, label in training) + 1
    shape, client_count = (1 if grey else 3, size, size), len({*clients})
    declared = Declared(shape, len(training), len(testing), classes, clients=client_count)
    for file, images in zip(lists, (training, testing), strict=True):
        _require_images(images, file, declared)
    dataset = decode_dataset(training, testing, classes, _name_folders(training, classes), size=size, grey=grey)
    return replace(dataset, train=replace(dataset.train, clients=np.array(clients))) if client_ids else dataset


def tiny_imagenet(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the unpacked folder; relative, it starts at dataset.root")] = "tiny-imagenet-200",
    size: Annotated[int, Ge(1), Le(4096), doc("height and width of the resized images")] = 64,
) -> Dataset:
    """Tiny-ImageNet 64 x 64 RGB, 200 classes, 100000 + 10000 images, in its original folder (Le and Yang 2015).

    Label n is line n, from 0, of wnids.txt. Training images are train/WNID/images/*, sorted by name. The test set is
    the validation set: val/images/* in the order of val/val_annotations.txt. test/ has no labels and is not read. The
    first name in words.txt names a class.

    Raises:
        MissingData: a file is missing.
        ConfigError: a line is malformed, an image cannot be read, or the images do not fit into memory.
    """
    folder = root / Path(path).expanduser()
    declared = Declared((3, size, size), train=100_000, test=10_000, classes=200)
    if not folder.is_dir():
        where = "a relative path starts at dataset.root"
        raise MissingData(f"dataset.path: there is no folder {folder}; {where}; unpack {TINY_IMAGENET}", declared)
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
    return decode_dataset(train, test, len(wnids), names, size=size, grey=False)


def _read_list(
    key: str, file: Path, folder: Path, first_label: int, client_ids: bool
) -> tuple[Labelled, Sequence[str]]:
    """Return the images in a list with their labels from 0, and the client ids if lines have them."""
    if not file.is_file():
        raise MissingData(f"{key}: there is no file {file}; a relative path starts at dataset.root")
    images: list[tuple[Path, int]] = []
    clients: list[str] = []
    for number, line in _lines(file):
        match = (WITH_CLIENT if client_ids else LINE).fullmatch(line)
        if not match or int(match[2]) < first_label:
            allowed = f"a path, a space and a label, a whole number from dataset.first_label ({first_label})"
            client_field = ", then a space and a client id" * client_ids
            raise ConfigError(f"{key}: {file}, line {number}: found {show(line)}, allowed: {allowed}{client_field}")
        images.append((folder / match[1].rstrip(), int(match[2]) - first_label))
        clients += match.groups()[2:]
    if not images:
        raise ConfigError(f"{key}: {file} names no images, allowed: a line for each, a path, a space and a label")
    return images, clients


def _check_lists(training: Labelled, testing: Labelled, lists: Sequence[Path], first_label: int) -> None:
    """Refuse a first label without images, a label in the test list only, and an image in both lists."""
    labels, trained = {label for _, label in training}, {image for image, _ in training}
    if min(labels):
        problem = f"found {first_label}, allowed: {first_label + min(labels)}, the smallest label in {lists[0]}"
        raise ConfigError(f"dataset.first_label: {problem}")
    for image, label in testing:
        if label not in labels:
            problem = f"found {image} with the label {first_label + label}, which no image in {lists[0]} has"
            raise ConfigError(f"dataset.test: {problem}, allowed: labels that are trained on")
        if image in trained:
            problem = f"found {image}, which is in {lists[0]} too, allowed: images that are not trained on"
            raise ConfigError(f"dataset.test: {problem}")


def _read_table(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the tab-separated fields of each line."""
    return ((number, [field.strip() for field in line.split("\t")]) for number, line in _lines(file))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the number, from 1, and the text of each non-empty line. Bytes that are not UTF-8 are escaped."""
    with file.open(encoding="utf-8", errors="surrogateescape") as lines:
        yield from ((number, line.strip()) for number, line in enumerate(lines, 1) if line.strip())


def _require_images(images: Labelled, file: Path, declared: Declared) -> None:
    absent = [image for image, _ in images if not os.path.isfile(image)]  # Path.is_file raises an error for some names
    if absent:
        problem = f"{len(absent):,} of the {len(images):,} images in {file} are not there, the first {absent[0]}"
        contents = declared if len(absent) == len(images) else None
        raise MissingData(f"dataset.path: {problem}; a relative path starts at dataset.root", contents)


def _name_folders(images: Labelled, classes: int) -> tuple[str, ...] | None:
    """Return the name of each class's folder, or None unless each class has exactly one, not shared."""
    pairs = {(label, image.parent.name) for image, label in images}
    names = dict(pairs)
    if len(pairs) == len({*names.values()}) == classes:
        return tuple(names[label] for label in range(classes))
    return None
