"""Recordings of the driving simulator CARLA: a picture and a file of boxes for each frame, in a folder per vehicle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from xml.etree import ElementTree

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen, doc

from raysim.config.signature import takes_keys_of
from raysim.data.class_order import in_class_order
from raysim.data.dataset import Dataset, Split
from raysim.data.decoding import LoadKeys
from raysim.data.detection.annotated import AnnotatedImage, label_of, number_names, read_dataset
from raysim.data.detection.box_rows import BoxesOfImage, BoxRows, Edges, Row
from raysim.data.detection.label_files import find_labels, to_number
from raysim.data.detection.proportions import Size, is_side
from raysim.data.image_files import describe_files, find_images, require_images, survey
from raysim.data.paths import require_folder
from raysim.data.pictures import WHITE, Background
from raysim.system.errors import ConfigError
from raysim.system.home import expand

EDGES = ("xmin", "ymin", "xmax", "ymax")


@takes_keys_of(LoadKeys, before="load")
def carla(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the folder with a folder for each vehicle; relative, it starts at dataset.root")],
    test_fraction: Annotated[float, Gt(0), Lt(1), doc("the last part of each vehicle's frames, for testing")] = 0.2,
    classes: Annotated[
        Annotated[tuple[str, ...], MinLen(1)] | None, doc("the classes' names in order; null is all that occur, sorted")
    ] = None,
    size: Annotated[int, Ge(8), Le(4096), doc("height and width of the resized images, for any proportions")] = 128,
    boxes: BoxesOfImage = 64,
    background: Background = WHITE,
    **keys: Any,
) -> Dataset:
    """Frames of CARLA: VEHICLE/000123.png, and their boxes as Pascal VOC in 000123.xml (Dosovitskiy et al., 2017).

    CARLA's tutorial on bounding boxes writes these files. Frames are sorted by name. A frame without an .xml has no
    boxes; `check` shows how many. The vehicles' folders, sorted, are the samples' client ids, for partition=natural.
    The columns are vehicle and frame, the number of the frame in its folder.

    Raises:
        MissingData: the folder is missing.
        ConfigError: a file is malformed, belongs to no frame, or states another size than its frame's. A box has no
            area, is not in its frame (see `boxes`), or is of an unknown class.
    """
    folder = require_folder(root / expand("dataset.path", path))
    _, vehicles = survey(folder)
    if not vehicles:
        raise ConfigError(f"dataset.path: {folder} holds no folders, allowed: a folder of frames for each vehicle")
    listings = [find_images(vehicle) for vehicle in vehicles]
    labels: dict[Path, Path] = {}
    for place, listing in zip(vehicles, listings, strict=True):
        require_images(place, listing)
        of_vehicle = find_labels(listing.images, place, place, ".xml")
        listing.others[".xml"] -= len(of_vehicle)
        labels |= of_vehicle
    files = {frame: _read(file) for frame, file in labels.items()}
    names = classes or in_class_order({one.name for file in files.values() for one in file.objects})
    numbers, found = number_names(names, "dataset.classes"), BoxRows(boxes)
    sets: tuple[list[AnnotatedImage], list[AnnotatedImage]] = ([], [])
    places: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for vehicle, frames in enumerate(listing.images for listing in listings):
        first_test = max(1, len(frames) - max(1, round(test_fraction * len(frames))))
        if len(frames) < 2:
            raise ConfigError(
                f"dataset.path: {vehicles[vehicle]} holds one frame, allowed: two and more, one for testing"
            )
        for number, frame in enumerate(frames):
            sets[number >= first_test].append(_annotate(frame, files.get(frame), numbers, found))
            places[number >= first_test].append((vehicle, number))
    dataset = read_dataset(
        *sets, names, size=size, boxes=found, background=background, root=root, keys=LoadKeys(**keys)
    )
    parts = [_with_places(split, place) for split, place in zip((dataset.train, dataset.test), places, strict=True)]
    ids = np.array([vehicle.name for vehicle in vehicles])[[vehicle for vehicle, _ in places[0]]]
    notes = (*describe_files(listings), *dataset.notes)
    return replace(dataset, train=replace(parts[0], clients=ids), test=parts[1], notes=notes)


def _with_places(split: Split, places: Sequence[tuple[int, int]]) -> Split:
    vehicle, frame = np.array(places).T
    return replace(split, columns={"vehicle": vehicle, "frame": frame})


@dataclass(frozen=True)
class _Object:
    name: str
    edges: Edges
    where: str


@dataclass(frozen=True)
class _File:
    where: str
    size: Size
    objects: Sequence[_Object]


def _read(file: Path) -> _File:
    """Return what is in a file of Pascal VOC's format."""
    try:
        tree = ElementTree.parse(file)
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # LookupError: an unknown encoding
        raise ConfigError(f"{file}: is no XML ({error})") from error
    width, height = (_number(tree, f"size/{side}", str(file)) for side in ("width", "height"))
    if not (is_side(width) and is_side(height)):
        raise ConfigError(f"{file}: found a size of {width:g} x {height:g}, allowed: numbers of pixels above 0")
    objects = []
    for number, one in enumerate(tree.iterfind("object"), 1):
        where = f"{file}, object {number}"
        name = one.findtext("name", "").strip()
        if not name:
            raise ConfigError(f"{where}: found no name, allowed: the name of a class")
        left, top, right, bottom = (_number(one, f"bndbox/{edge}", where) for edge in EDGES)
        objects.append(_Object(name, (left, top, right, bottom), where))
    return _File(str(file), (width, height), objects)


def _number(tree: ElementTree.ElementTree[ElementTree.Element] | ElementTree.Element, name: str, where: str) -> float:
    text = tree.findtext(name, "nothing")
    try:
        return to_number(text)
    except ValueError as error:
        raise ConfigError(f"{where}: found {name} {text!r:.40}, allowed: a number of pixels") from error


def _annotate(frame: Path, file: _File | None, numbers: Mapping[str, int], found: BoxRows) -> AnnotatedImage:
    if file is None:
        return AnnotatedImage(frame, (), str(frame), has_file=False)
    rows: list[Row] = []
    for one in file.objects:
        row = found.row(label_of(one.name, numbers, one.where), one.edges, file.size, one.where)
        rows += [] if row is None else [row]
    return AnnotatedImage(frame, rows, file.where, file.size)
