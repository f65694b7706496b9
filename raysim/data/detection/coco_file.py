"""A file of annotations in COCO's format, every value checked for its type before it is used."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from raysim.config.error_text import show
from raysim.data.detection.annotated import list_some
from raysim.data.detection.proportions import is_number, is_side
from raysim.data.paths import require_file
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError
from raysim.system.progress import tell_progress

OFTEN = 2**18  # entries between two reports of progress
LONG = 2**24  # bytes of a file whose reading is reported
# about as many bytes Python's objects take for each character that begins or separates them, and of the text
OBJECT, LIST, FIELD, ITEM, CHARACTER = 200, 100, 80, 32, 2
LISTS: Mapping[str, tuple[str, ...]] = {
    "images": ("id", "file_name", "width", "height"),
    "annotations": ("image_id", "category_id"),
    "categories": ("id", "name"),
}
"""The lists of a file, and the fields that each of their entries needs."""

Id = int | str


@dataclass(frozen=True, slots=True)
class CocoImage:
    """An image's entry."""

    file_name: str
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class CocoObject:
    """An annotation's entry: an object of an image, with a box or polygons in pixels."""

    image: Id
    category: Id
    is_crowd: bool
    box: tuple[float, float, float, float] | None
    """Left, top, width, height; None if there are only polygons."""
    points: Sequence[float]
    """The points x, y, x, y, ... of the polygons, if there is no box."""
    where: str
    """The file and the entry, for errors."""


class _Entries:
    """The entries of one of the file's lists, checked for their fields."""

    def __init__(self, content: object, key: str, file: Path, name: str) -> None:
        rows = content.get(name) if isinstance(content, dict) else None
        if not isinstance(rows, list):
            raise ConfigError(f"{key}: {file} has no list {name}, allowed: COCO's {', '.join(LISTS)}")
        self.key, self.file, self.name, self.rows = key, file, name, rows

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        fields = LISTS[self.name]
        for number, row in enumerate(self.rows):
            if number % OFTEN == OFTEN - 1:
                tell_progress(f"reading {self.name}: {number + 1:,} of {len(self.rows):,}", number / len(self.rows))
            if not isinstance(row, dict):
                self.refuse(number, f"found {show(row)}, allowed: an entry with {', '.join(fields)}")
            for field in fields:
                if field not in row:
                    self.refuse(number, f"found no {field}, allowed: {', '.join(fields)}")
            yield number, row

    def place(self, number: int) -> str:
        """Return the place of an entry, for errors."""
        return f"{self.file}, {self.name}[{number}]"

    def refuse(self, number: int, words: str) -> NoReturn:
        """Raise a ConfigError on an entry."""
        raise ConfigError(f"{self.key}: {self.place(number)}: {words}")

    def name_of(self, number: int, value: object, field: str) -> str:
        """Return a name, which is a text."""
        if not isinstance(value, str) or not value.strip():
            self.refuse(number, f"found the {field} {show(value)}, allowed: a text that is not empty")
        return value

    def id_of(self, number: int, value: object, field: str) -> Id:
        """Return an id."""
        if isinstance(value, bool) or not isinstance(value, int | str):
            self.refuse(number, f"found the {field} {show(value)}, allowed: a whole number or a text")
        return value

    def once(self, number: int, value: Id, field: str, seen: dict[Id, int]) -> None:
        """Refuse a value that an earlier entry has, too; `seen` has the entries' numbers."""
        first = seen.setdefault(value, number)
        if first != number:
            self.refuse(
                number, f"found the {field} {show(value)} again, allowed: one entry with it, as {self.name}[{first}]"
            )


class CocoFile:
    """A file's images and categories by their ids, and its annotations.

    Raises:
        MissingData: there is no such file.
        ConfigError: the file is no JSON, or is too large for the memory. An entry lacks a field or has one of another
            type. Two entries have one id or one name.
    """

    def __init__(self, key: str, file: Path) -> None:
        self.key, self.name = key, file.name
        content = _load(key, file)
        self._images, self._annotations, categories = (_Entries(content, key, file, name) for name in LISTS)
        self.images: Mapping[Id, CocoImage] = dict(_read_images(self._images))
        self.categories: Mapping[Id, str] = dict(_read_categories(categories))

    def place(self, number: int) -> str:
        """Return the place of an image's entry, for errors; `number` is its place in `images`."""
        return self._images.place(number)

    def objects(self) -> Iterator[CocoObject]:
        """Yield the annotations in the order of the file, those without a box and polygons refused."""
        entries, seen = self._annotations, dict[Id, int]()
        for number, row in entries:
            if "id" in row:
                entries.once(number, entries.id_of(number, row["id"], "id"), "id", seen)
            image = entries.id_of(number, row["image_id"], "image_id")
            category = entries.id_of(number, row["category_id"], "category_id")
            if image not in self.images:
                entries.refuse(number, f"found the image_id {show(image)}, allowed: the id of one of its images")
            if category not in self.categories:
                entries.refuse(number, f"found the category_id {show(category)}, allowed: {list_some(self.categories)}")
            crowd = row.get("iscrowd")
            if crowd not in (None, 0, 1):
                entries.refuse(number, f"found the iscrowd {show(crowd)}, allowed: 0 or 1")
            box = None if row.get("bbox") is None or crowd else _read_box(entries, number, row["bbox"])
            points = () if box or crowd else _read_points(entries, number, row.get("segmentation"))
            yield CocoObject(image, category, bool(crowd), box, points, entries.place(number))


def _load(key: str, file: Path) -> object:
    """Return the content of a JSON file that fits into memory."""
    require_file(key, file)
    size = file.stat().st_size
    if size > LONG:
        tell_progress(f"reading {file.name}: {size / 2**20:,.0f} MiB")
    require_memory(size * (1 + CHARACTER), key, file)
    data = file.read_bytes()
    objects = {b"{": OBJECT, b"[": LIST, b":": FIELD, b",": ITEM}
    require_memory(size * (1 + CHARACTER) + sum(data.count(sign) * cost for sign, cost in objects.items()), key, file)
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ConfigError(f"{key}: {file} is no JSON of COCO's (its lists are nested too deep)") from error
    except ValueError as error:  # also what is no UTF-8, and a number of too many digits
        raise ConfigError(f"{key}: {file} is no JSON ({error})") from error


def _read_images(entries: _Entries) -> Iterator[tuple[Id, CocoImage]]:
    ids, names = dict[Id, int](), dict[Id, int]()
    for number, row in entries:
        one = entries.id_of(number, row["id"], "id")
        entries.once(number, one, "id", ids)
        name = entries.name_of(number, row["file_name"], "file_name")
        entries.once(number, os.path.normpath(name), "file_name", names)
        width, height = row["width"], row["height"]
        if not (is_side(width) and is_side(height)):
            found = f"found a size of {show(width)} x {show(height)}"
            entries.refuse(number, f"{found}, allowed: numbers of pixels, whole and above 0")
        yield one, CocoImage(name, width, height)


def _read_categories(entries: _Entries) -> Iterator[tuple[Id, str]]:
    ids, names = dict[Id, int](), dict[Id, int]()
    for number, row in entries:
        one = entries.id_of(number, row["id"], "id")
        entries.once(number, one, "id", ids)
        name = entries.name_of(number, row["name"], "name")
        entries.once(number, name, "name", names)
        yield one, name


def _read_box(entries: _Entries, number: int, box: object) -> tuple[float, float, float, float]:
    if not (isinstance(box, list) and len(box) == 4 and all(map(is_number, box))):
        entries.refuse(number, f"found the bbox {show(box)}, allowed: [left, top, width, height] in pixels")
    left, top, width, height = box
    return left, top, width, height


def _read_points(entries: _Entries, number: int, polygons: object) -> Sequence[float]:
    """Return the points of all polygons of an object."""
    if isinstance(polygons, dict):
        advice = "add a bbox, as pycocotools.mask.toBbox computes it from a mask"
        entries.refuse(
            number, f"found no bbox and a segmentation as a mask (RLE), allowed: a bbox or polygons; {advice}"
        )
    if polygons is None:
        entries.refuse(number, "found no bbox, allowed: a bbox, or polygons as segmentation")
    if not (isinstance(polygons, list) and polygons and all(map(_is_polygon, polygons))):
        allowed = "lists of x, y, x, y, ... in pixels, at least 3 points each"
        entries.refuse(number, f"found no bbox and the segmentation {show(polygons)}, allowed: {allowed}")
    return [value for polygon in polygons for value in polygon]


def _is_polygon(points: object) -> bool:
    return isinstance(points, list) and len(points) >= 6 and len(points) % 2 == 0 and all(map(is_number, points))
