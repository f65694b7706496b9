"""Recordings of the driving simulator CARLA: a picture and a file of boxes for each frame, in a folder per vehicle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen, doc

from raysim.data.dataset import Dataset, Split
from raysim.data.decoding import list_entries, list_images
from raysim.data.detection.annotated import AnnotatedImage, Row, label_of, read_dataset, row_of_box
from raysim.data.paths import require_folder
from raysim.system.errors import ConfigError
from raysim.system.home import expand

EDGES = ("xmin", "ymin", "xmax", "ymax")


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
    boxes: Annotated[int, Ge(1), Le(1000), doc("the most boxes of a frame")] = 64,
) -> Dataset:
    """Frames of CARLA: VEHICLE/000123.png, and their boxes as Pascal VOC in 000123.xml (Dosovitskiy et al., 2017).

    CARLA's tutorial on bounding boxes writes these files. Frames are sorted by name. A frame without an .xml has no
    boxes. The vehicles' folders, sorted, are the samples' client ids, for partition=natural. The columns are vehicle
    and frame, the number of the frame in its folder.

    Raises:
        MissingData: the folder is missing.
        ConfigError: a file is malformed, or a box has no area, is not in its frame, or is of an unknown class.
    """
    folder = require_folder(root / expand("dataset.path", path))
    vehicles = [entry for entry in list_entries(folder) if entry.is_dir()]
    if not vehicles:
        raise ConfigError(f"dataset.path: {folder} holds no folders, allowed: a folder of frames for each vehicle")
    frames = [list_images(vehicle) for vehicle in vehicles]
    files = {frame: _read(frame.with_suffix(".xml")) for of_vehicle in frames for frame in of_vehicle}
    names = classes or sorted({name for objects in files.values() for name, _, _, _ in objects})
    sets: tuple[list[AnnotatedImage], list[AnnotatedImage]] = ([], [])
    places: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for vehicle, of_vehicle in enumerate(frames):
        first_test = max(1, len(of_vehicle) - max(1, round(test_fraction * len(of_vehicle))))
        if len(of_vehicle) < 2:
            raise ConfigError(
                f"dataset.path: {vehicles[vehicle]} holds one frame, allowed: two and more, one for testing"
            )
        for number, frame in enumerate(of_vehicle):
            rows = [_row(found, names) for found in files[frame]]
            sets[number >= first_test].append(AnnotatedImage(frame, rows, str(frame.with_suffix(".xml"))))
            places[number >= first_test].append((vehicle, number))
    dataset = read_dataset(*sets, names, size=size, boxes=boxes)
    parts = [_with_places(split, place) for split, place in zip((dataset.train, dataset.test), places, strict=True)]
    ids = np.array([vehicle.name for vehicle in vehicles])[[vehicle for vehicle, _ in places[0]]]
    return replace(dataset, train=replace(parts[0], clients=ids), test=parts[1])


def _with_places(split: Split, places: Sequence[tuple[int, int]]) -> Split:
    vehicle, frame = np.array(places).T
    return replace(split, columns={"vehicle": vehicle, "frame": frame})


Found = tuple[str, list[float], tuple[float, float], str]
"""An object's class, its box (left, top, right, bottom), the frame's width and height, and where it was found."""


def _read(file: Path) -> list[Found]:
    """Return the objects in a file of Pascal VOC's format."""
    if not file.is_file():
        return []
    try:
        tree = ElementTree.parse(file)
    except (ElementTree.ParseError, ValueError) as error:
        raise ConfigError(f"{file}: is no XML ({error})") from error
    size = _number(tree, "size/width", str(file)), _number(tree, "size/height", str(file))
    found = []
    for number, one in enumerate(tree.iterfind("object"), 1):
        where = f"{file}, object {number}"
        found.append(
            (one.findtext("name", "").strip(), [_number(one, f"bndbox/{edge}", where) for edge in EDGES], size, where)
        )
    return found


def _number(tree: ElementTree.ElementTree[ElementTree.Element] | ElementTree.Element, name: str, where: str) -> float:
    text = tree.findtext(name, "nothing")
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"{where}: found {name} {text!r:.40}, allowed: a number of pixels") from error


def _row(found: Found, names: Sequence[str]) -> Row:
    name, box, size, where = found
    return row_of_box(label_of(name, names, where), box, size, where)
