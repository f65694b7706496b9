"""Files of boxes, one for each image: which file belongs to which image, and the numbers in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from raysim.system.errors import ConfigError

OF_TOOLS = {"classes.txt"}  # labelImg writes the names of classes beside the boxes
SHOWN = 3  # files that a message names


def find_labels(images: Sequence[Path], folder: Path, below: Path, suffix: str) -> dict[Path, Path]:
    """Return the file of boxes of each image that has one: it has the image's name, except for the end.

    Args:
        images: the images.
        folder: their folder. Names begin there, so images in folders below it have labels in folders of that name.
        below: the folder of the files of boxes.
        suffix: the end of their names, in lower case.

    Raises:
        ConfigError: a file of boxes belongs to no image, or an image and a file share their name with another.
    """
    named: dict[Path, list[Path]] = {}
    for image in images:
        named.setdefault(image.relative_to(folder).with_suffix(""), []).append(image)
    found: dict[Path, Path] = {}
    alone: list[tuple[Path, Path]] = []
    for file in _list_labels(below, suffix):
        name = file.relative_to(below).with_suffix("")
        of_name = named.get(name, [])
        if not of_name:
            alone.append((name, file))
        elif len(of_name) > 1:
            both = f"{of_name[0].name} and {of_name[1].name}"
            raise ConfigError(
                f"dataset.path: {file} has boxes of {both}, allowed: one image; remove or rename the other"
            )
        elif of_name[0] in found:
            both = f"{found[of_name[0]]} and {file.name}"
            raise ConfigError(
                f"dataset.path: found {both} for {of_name[0]}, allowed: one file of boxes; remove the other"
            )
        else:
            found[of_name[0]] = file
    if alone:
        _refuse(alone, {str(name).casefold(): some[0] for name, some in named.items()}, folder)
    return found


def _list_labels(folder: Path, suffix: str) -> list[Path]:
    """Return the files of boxes in a folder and in those below it, through links as images are found."""
    found: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(place))
        # a link to a folder that holds it would never end
        folders[:] = sorted(
            name for name in folders if name[0] != "." and os.path.realpath(Path(place, name)) not in seen
        )
        found += [Path(place, name) for name in sorted(names) if name[0] != "." and name.lower().endswith(suffix)]
    return [file for file in found if file.is_file() and file.name not in OF_TOOLS]


def _refuse(alone: Sequence[tuple[Path, Path]], images: dict[str, Path], folder: Path) -> None:
    """Raise a ConfigError on files of boxes that belong to no image; `images` have their names in lower case."""
    first = ", ".join(str(file) for _, file in alone[:SHOWN]) + ", ..." * (len(alone) > SHOWN)
    problem = f"dataset.path: found {len(alone):,} files of boxes without an image in {folder} ({first})"
    for name, file in alone:
        if near := images.get(str(name).casefold()):
            problem += f"; {file.name} and {near.name} differ in upper and lower case"
            break
    raise ConfigError(f"{problem}, allowed: an image of the same name for each; rename or remove what is left over")


def to_number(text: str) -> float:
    """Return the number in a text. Raises ValueError, also for 1_000 and for digits that are not ASCII."""
    if "_" in text or not text.isascii():
        raise ValueError(f"{text!r} is no plain number")
    return float(text)
