"""Images and boxes in the layout of YOLO's tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le, MinLen, doc

from raysim.config.error_text import show
from raysim.config.signature import takes_keys_of
from raysim.config.yaml_text import read_yaml_texts
from raysim.data.dataset import Dataset
from raysim.data.decoding import LoadKeys
from raysim.data.detection.annotated import AnnotatedImage, label_of, number_names, read_dataset
from raysim.data.detection.box_rows import BoxesOfImage, BoxRows, Edges, Row
from raysim.data.detection.label_files import find_labels, to_number
from raysim.data.image_files import Listing, describe_files, find_images, require_images
from raysim.data.paths import require_folder
from raysim.data.pictures import WHITE, Background
from raysim.system.errors import ConfigError
from raysim.system.home import expand

LARGEST = 2**24  # bytes of a file of boxes
ALLOWED = (
    "class, x, y, width and height, a whole number and four fractions of the image; or class and 3 points x, y or more"
)


@takes_keys_of(LoadKeys, before="load")
def yolo(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the folder with images and labels; relative, it starts at dataset.root")],
    train: Annotated[str, doc("the folder, in images and in labels, to train on")] = "train",
    test: Annotated[str, doc("the folder to test on")] = "val",
    classes: Annotated[
        Annotated[tuple[str, ...], MinLen(1)] | None,
        doc("the classes that are used; null is all `names` of data.yaml. Without data.yaml, their names in order"),
    ] = None,
    size: Annotated[int, Ge(8), Le(4096), doc("height and width of the resized images, for any proportions")] = 128,
    boxes: BoxesOfImage = 64,
    background: Background = WHITE,
    **keys: Any,
) -> Dataset:
    """Images with boxes in YOLO's layout: images/TRAIN/NAME.jpg, labels/TRAIN/NAME.txt, and data.yaml with the names.

    A line of a text file is `class x y width height`: the center and the size as fractions of the image. A line
    `class x1 y1 x2 y2 x3 y3 ...` is a polygon, and its box is the smallest one around it. An image without a text file
    has no boxes; `check` shows how many. Images in folders below images/TRAIN have labels in folders of the same name.
    Pillow's bilinear filter resizes the images.

    Raises:
        MissingData: a folder is missing.
        ConfigError: a text file belongs to no image, or a line is malformed. Its box has no area, is not in the image
            (see `boxes`), or is of an unknown class.
    """
    folder, found = require_folder(root / expand("dataset.path", path)), BoxRows(boxes)
    names, labels = _choose_names(folder / "data.yaml", classes)
    listings = [_list_part(folder / "images" / part) for part in (train, test)]
    training, testing = (
        _read_part(folder, part, listing, labels, found) for part, listing in zip((train, test), listings, strict=True)
    )
    dataset = read_dataset(
        training, testing, names, size=size, boxes=found, background=background, root=root, keys=LoadKeys(**keys)
    )
    return replace(dataset, notes=(*describe_files(listings), *dataset.notes))


def _choose_names(file: Path, classes: Sequence[str] | None) -> tuple[Sequence[str], Sequence[int | None]]:
    """Return the names of the classes that are used, and for each number in the files of boxes its class's, if used."""
    of_files = _read_names(file) if classes is None or file.is_file() else classes
    names = of_files if classes is None else classes
    known, numbers = number_names(of_files, str(file)), number_names(names, "dataset.classes")
    for name in names:
        label_of(name, known, "dataset.classes")
    return names, [numbers.get(name) for name in of_files]


def _read_names(file: Path) -> Sequence[str]:
    """Return the names in data.yaml, as they are written: a list, or a mapping from 0, 1, ..."""
    if not file.is_file():
        raise ConfigError(
            f"dataset.classes: found null and no file {file}, allowed: one of both, which names the classes"
        )
    content = read_yaml_texts(file)
    content = content if isinstance(content, dict) else {}
    names = content.get("names")
    if isinstance(names, dict) and names.keys() == {str(number) for number in range(len(names))}:
        names = [names[str(number)] for number in range(len(names))]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{file}: found names {show(names)}, allowed: a list of names, or a mapping from 0, 1, ...")
    count = content.get("nc", str(len(names)))
    if count != str(len(names)):
        raise ConfigError(f"{file}: found nc {show(count)} and {len(names)} names, allowed: the number of names")
    if "kpt_shape" in content:  # points that follow the box in each line would be read as a polygon
        raise ConfigError(f"{file}: found kpt_shape, which is of key points, allowed: boxes and polygons")
    return names


def _list_part(folder: Path) -> Listing:
    found = find_images(require_folder(folder))
    require_images(folder, found)
    return found


def _read_part(
    folder: Path, part: str, listing: Listing, labels: Sequence[int | None], found: BoxRows
) -> list[AnnotatedImage]:
    """Return the images of one part and their boxes."""
    files = find_labels(listing.images, folder / "images" / part, folder / "labels" / part, ".txt")
    return [
        AnnotatedImage(image, _read_rows(files[image], labels, found), str(files[image]))
        if image in files
        else AnnotatedImage(image, (), str(image), has_file=False)
        for image in listing.images
    ]


def _read_rows(file: Path, labels: Sequence[int | None], found: BoxRows) -> list[Row]:
    """Return the rows of a file of boxes and polygons, one in each line."""
    if file.stat().st_size > LARGEST:
        raise ConfigError(f"{file}: found {file.stat().st_size:,} bytes, allowed: at most {LARGEST:,} for one image")
    rows: list[Row] = []
    for number, line in enumerate(file.read_text(encoding="utf-8-sig", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            label, *values = map(to_number, line.split())
            if not label.is_integer() or not (len(values) == 4 or (len(values) >= 6 and len(values) % 2 == 0)):
                raise ValueError("no box and no polygon")
        except ValueError as error:
            raise ConfigError(f"{where}: found {show(line.strip())}, allowed: {ALLOWED}") from error
        if not 0 <= label < len(labels):
            raise ConfigError(f"{where}: found the class {show(int(label))}, allowed: 0 to {len(labels) - 1}")
        used = labels[int(label)]
        if used is None:
            found.leave_out("of other classes")
        elif row := found.row(used, _edges(values) if len(values) == 4 else found.around(values), (1.0, 1.0), where):
            rows.append(row)
    return rows


def _edges(values: Sequence[float]) -> Edges:
    x, y, w, h = values
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2
