"""Folders of images, one for each class: which are the classes, which the split, and what is left out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raysim.config.error_text import nearest
from raysim.data.class_order import describe_classes, in_class_order
from raysim.data.dataset import draw_for_testing
from raysim.data.decoding import Labelled
from raysim.data.image_files import Listing, describe_files, find_images, require_images, survey
from raysim.data.split_names import TEST, TRAIN, VALIDATION, choose_test, part_of
from raysim.system import seeding
from raysim.system.errors import ConfigError

EXAMPLES = 3  # folders in a message

Files = Mapping[str, Sequence[Path]]  # by class, in order


@dataclass(frozen=True)
class ClassFolders:
    """The images of every class, in the order of the classes, and what the dataset says of them."""

    train: dict[str, Sequence[Path]]
    test: dict[str, Sequence[Path]] | None
    """None if there are no folders for testing."""
    notes: tuple[str, ...]
    doubts: tuple[str, ...] = ()


def read_class_folders(folder: Path, selected: Sequence[str] | None) -> ClassFolders:
    """Return the images in a folder of classes, or in its folders for training and testing.

    Args:
        folder: the folder.
        selected: the folders of classes that are used; None is all.

    Raises:
        ConfigError: there are no folders, or one has no images. Folders for training and testing have other classes, or
            are there without the other one.
    """
    own, below = survey(folder)
    training = _folder_of(TRAIN, below)
    testing = _folder_of(choose_test([part_of(entry.name) for entry in below]), below)
    if training is None or testing is None:
        _refuse_half_a_split(folder, below)
        files, outside = _read_classes(folder, selected)
        notes = (*describe_files([outside, *files.values()]), describe_classes([*files]))
        return ClassFolders(_images(files), None, notes, tuple(_doubts(folder, [*files])))
    (train, outside), (test, outside_of_test) = (_read_classes(part, selected) for part in (training, testing))
    _require_same_classes(training, train, testing, test)
    unused = [entry.name for entry in below if entry not in (training, testing)]
    notes = (
        *([f"tested on the folder {testing.name}"] if part_of(testing.name) != TEST else []),
        *([f"left out the folder{'s' * (len(unused) > 1)} {', '.join(unused)}"] if unused else []),
        *describe_files([_outside(own), outside, outside_of_test, *train.values(), *test.values()]),
        describe_classes([*train]),
    )
    return ClassFolders(_images(train), _images(test), notes)


def _folder_of(part: str | None, folders: Sequence[Path]) -> Path | None:
    """Return the folder of a part of the split, if there is one."""
    found = [folder for folder in folders if part_of(folder.name) == part]
    if len(found) > 1:
        both = " and ".join(folder.name for folder in found)
        raise ConfigError(f"dataset.path: {found[0].parent} has the folders {both}, allowed: one of them")
    return found[0] if found else None


def _read_classes(folder: Path, selected: Sequence[str] | None) -> tuple[dict[str, Listing], Listing]:
    """Return the files of every class, and those outside the classes."""
    own, below = survey(folder)
    names = [entry.name for entry in below]
    if not names:
        raise ConfigError(f"dataset.path: {folder} holds no folders, allowed: a folder of images for each class")
    for name in selected or ():
        if name not in names:
            raise ConfigError(f"dataset.classes: there is no folder '{name}' in {folder}{nearest(name, names)}")
    files = {name: find_images(folder / name) for name in in_class_order(selected or names)}
    for name, found in files.items():
        require_images(folder / name, found)
    return files, _outside(own)


def _outside(own: Listing) -> Listing:
    """Return what is outside the folders of the classes: its images are left out, too."""
    return Listing([], own.others + Counter({"outside the classes' folders": len(own.images)}))


def _images(files: dict[str, Listing]) -> dict[str, Sequence[Path]]:
    return {name: found.images for name, found in files.items()}


def _refuse_half_a_split(folder: Path, below: Iterable[Path]) -> None:
    """Refuse a folder for training or testing as a class. One with images of its own may be a class of this name."""
    for entry in (entry for entry in below if part_of(entry.name) in (TRAIN, TEST, *VALIDATION)):
        own, inner = survey(entry)
        if inner and not own.images:
            allowed = "train and test, or train and val, or a folder of images for each class"
            raise ConfigError(
                f"dataset.path: {folder} has the folder {entry.name} of classes alone, allowed: {allowed}"
            )


def _doubts(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """Yield a warning if the folders below those of the classes may be the classes.

    Raises:
        ConfigError: there is only one folder, which holds folders.
    """
    below = []
    for name in names:
        own, inner = survey(folder / name)
        if own.images or not inner:
            return
        below.append(inner)
    name, inner = names[0], below[0]
    if len(names) == 1:
        hint = f"it holds the folder {inner[0].name}: is {folder / name} the path that was meant?"
        raise ConfigError(
            f"dataset.path: {folder / name} holds no images, allowed: at least one in every class's folder; {hint}"
        )
    if any(len(found) > 1 for found in below):
        yield (
            f"the classes of {folder} are its folders ({', '.join(names[:EXAMPLES])}), and all images are in folders "
            f"below these, such as {name}/{inner[0].name}; if such folders are the classes, set dataset.path to one of "
            "them, or call those of a split train and test"
        )


def _require_same_classes(
    folder: Path, files: dict[str, Listing], other: Path, other_files: dict[str, Listing]
) -> None:
    odd = sorted(set(files) ^ set(other_files))
    if odd:
        has, lacks = (folder, other) if odd[0] in files else (other, folder)
        raise ConfigError(f"dataset.path: {has} has a class '{odd[0]}' and {lacks} has not; both must have the same")


def draw_split(folder: Path, files: Files, fraction: float, seed: int) -> tuple[Files, Files]:
    """Draw the test images of every class. Both parts stay in order. Raises ConfigError: a class has one image."""
    train: dict[str, Sequence[Path]] = {}
    test: dict[str, Sequence[Path]] = {}
    for name, images in files.items():
        if len(images) < 2:
            raise ConfigError(f"dataset.path: {folder / name} holds one image, allowed: two and more, one for testing")
        chosen = draw_for_testing(len(images), fraction, seeding.generator(seed, "image_folder", name))
        train[name] = [image for number, image in enumerate(images) if number not in chosen]
        test[name] = [image for number, image in enumerate(images) if number in chosen]
    return train, test


def labeled(files: Files) -> Labelled:
    """Return the images with the numbers of their classes."""
    return [(image, label) for label, images in enumerate(files.values()) for image in images]
