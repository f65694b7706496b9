"""Find the image files below a folder, and count what else is there."""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from raysim.system.errors import ConfigError

SUFFIXES = {
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".bmp", ".dib", ".gif", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
}
"""The ends of images' names, in lower case: those of `pictures.FORMATS`."""

OF_SYSTEMS = {"thumbs.db", "ehthumbs.db", "desktop.ini"}  # hidden files of Windows, in lower case
OF_ARCHIVES = "__MACOSX"  # macOS puts this folder into archives: its files have images' names and hold none


@dataclass(frozen=True)
class Listing:
    """The images of a folder, and the number of its other files by kind, such as ".txt" or "hidden"."""

    images: list[Path] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)


def survey(folder: Path) -> tuple[Listing, list[Path]]:
    """Return a folder's own files and its folders, sorted by name. Hidden folders count as their files.

    Raises:
        ConfigError: an entry is neither a file nor a folder, such as a pipe or a link to nothing.
    """
    own, below = Listing(), []
    with os.scandir(folder) as found:  # which knows the kinds of entries, so that files are not asked one by one
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if _is_hidden(entry.name) or entry.name == OF_ARCHIVES:
            kind = f"in {OF_ARCHIVES}" if entry.name == OF_ARCHIVES else "hidden"
            own.others[kind] += sum(one.is_file() for one in Path(entry).rglob("*")) if entry.is_dir() else 1
        elif entry.is_dir():
            below.append(folder / entry.name)
        elif not entry.is_file():
            what = "a link to nothing" if entry.is_symlink() else "a pipe or a device"
            raise ConfigError(f"dataset.path: {entry.path} is {what}, allowed: files and folders; replace or remove it")
        elif (suffix := os.path.splitext(entry.name)[1].lower()) in SUFFIXES:
            own.images.append(folder / entry.name)
        else:
            own.others[suffix.rstrip(".") or "without a suffix"] += 1
    return own, below


def find_images(folder: Path) -> Listing:
    """Return the images in a folder and in the folders below it: first the folder's own, all sorted by name.

    Raises:
        ConfigError: as `survey`, or a link leads to a folder that holds it.
    """
    return _find(folder, (folder.resolve(),))


def _find(folder: Path, around: tuple[Path, ...]) -> Listing:
    found, below = survey(folder)
    for entry in below:
        inner = entry.resolve()
        if inner in around:
            raise ConfigError(f"dataset.path: {entry} is a link to a folder that holds it, allowed: folders; remove it")
        listing = _find(entry, (*around, inner))
        found.images.extend(listing.images)
        found.others.update(listing.others)
    return found


def list_images(folder: Path) -> list[Path]:
    """Return the images in a folder and in the folders below it.

    Raises:
        ConfigError: there are none; also as `find_images`.
    """
    found = find_images(folder)
    require_images(folder, found)
    return found.images


def require_images(folder: Path, found: Listing) -> None:
    """Refuse a folder without images."""
    if not found.images:
        other = f"; it has {_kinds(found.others)}" if found.others.total() else ""
        raise ConfigError(
            f"dataset.path: {folder} holds no images, allowed: at least one in every class's folder{other}"
        )


def describe_files(listings: Iterable[Listing]) -> tuple[str, ...]:
    """Return a note on the files that are left out, if there are any."""
    used, others = 0, Counter[str]()
    for listing in listings:
        used += len(listing.images)
        others.update(listing.others)
    return (f"used {used:,} of {used + others.total():,} files; left out: {_kinds(+others)}",) if others.total() else ()


def _kinds(others: Counter[str]) -> str:
    return ", ".join(
        f"{count:,} {kind}" for kind, count in sorted((+others).items(), key=lambda one: (-one[1], one[0]))
    )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in OF_SYSTEMS
