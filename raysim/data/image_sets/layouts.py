"""The layouts of published image datasets: from a folder to images with labels, and the split."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from raysim.config.error_text import show
from raysim.data.archives import require_md5
from raysim.data.class_folders import draw_split, labeled, read_class_folders
from raysim.data.dataset import MissingData
from raysim.data.decoding import Labelled
from raysim.data.image_sets.records import (
    Core50Keys,
    DomainNetKeys,
    DrawnKeys,
    FoundImages,
    ImageSet,
    ListedKeys,
    Office31Keys,
    OfficeHomeKeys,
    SetKeys,
    SplitList,
)
from raysim.data.paths import RELATIVE
from raysim.system.errors import ConfigError, first_line
from raysim.system.importing import import_extra

REAL_WORLD = ("Real World", "RealWorld", "Real")  # copies of Office-Home have other names than the archive
TEST_SESSIONS = (3, 7, 10)  # of CORe50's 11
CATEGORIES = (
    *("plug_adapter", "mobile_phone", "scissors", "light_bulb", "can"),
    *("glasses", "ball", "marker", "cup", "remote_control"),
)
"""CORe50's categories, of 5 objects each."""


def drawn(record: ImageSet, folder: Path, keys: DrawnKeys) -> FoundImages:
    """A folder for each class, without an official split: a part is drawn, unless there are folders train and test."""
    found = read_class_folders(folder, None)
    names = tuple(found.train)
    if found.test is not None:
        return FoundImages(labeled(found.train), labeled(found.test), names, found.notes)
    train, test = draw_split(folder, found.train, keys.test_fraction, keys.seed)
    note = (
        f"there is no official split: {keys.test_fraction:g} of each class, drawn with seed {keys.seed}, is for testing"
    )
    return FoundImages(labeled(train), labeled(test), names, (note, *found.notes))


def listed(record: ImageSet, folder: Path, keys: ListedKeys) -> FoundImages:
    """A folder for each class, with lists in YAML (`data`, `targets`) of paths and labels for training and testing."""
    if keys.split == "drawn":
        return drawn(record, folder, keys)
    parts = [_read_yaml(_find_list(one, folder), folder) for one in record.lists]
    return FoundImages(parts[0], parts[1], _name_by_folder(record, parts), (_said(record),))


def listed_in_json(record: ImageSet, folder: Path, keys: ListedKeys) -> FoundImages:
    """A folder for each class, with a JSON object of lists `train` and `test` of path, label and name."""
    if keys.split == "drawn":
        return drawn(record, folder, keys)
    file = _find_list(record.lists[0], folder)
    try:
        content = json.loads(file.read_bytes())
        parts = [
            [(_below(folder, str(path)), int(label), str(name)) for path, label, name in content[part]]
            for part in ("train", "test")
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(file, error, "an object of lists train and test of [path, label, name]") from error
    names = dict(sorted({(label, name) for rows in parts for _, label, name in rows}))
    _require_all(record, names, file)
    splits = [[(path, label) for path, label, _ in rows] for rows in parts]
    return FoundImages(splits[0], splits[1], tuple(names.values()), (_said(record),))


def office_home(record: ImageSet, folder: Path, keys: OfficeHomeKeys) -> FoundImages:
    """A folder for each domain, with a folder for each class."""
    words = {"art": ("Art",), "clipart": ("Clipart",), "product": ("Product",), "real_world": REAL_WORLD}
    return drawn(record, _domain(folder, words[keys.domain]), keys)


def office_31(record: ImageSet, folder: Path, keys: Office31Keys) -> FoundImages:
    """A folder for each domain, with a folder images that has a folder for each class."""
    return drawn(record, _domain(folder, (f"{keys.domain}/images", keys.domain)), keys)


def cub(record: ImageSet, folder: Path, keys: SetKeys) -> FoundImages:
    """images/, and text files with an image's number in each line: its path, its class from 1, its part."""
    images, labels, training = (
        dict(_pairs(folder / name)) for name in ("images.txt", "image_class_labels.txt", "train_test_split.txt")
    )
    names = tuple(name for _, name in _pairs(folder / "classes.txt"))
    parts: tuple[list[tuple[Path, int]], list[tuple[Path, int]]] = ([], [])
    for number, path in images.items():
        label, trains = labels.get(number, ""), training.get(number, "")
        if not label.isdecimal() or not 1 <= int(label) <= len(names) or trains not in ("0", "1"):
            problem = f"image {number} has the label {show(label)} and the part {show(trains)}"
            raise ConfigError(f"dataset.path: {folder}: {problem}, allowed: 1 to {len(names)}, and 0 or 1")
        parts[trains == "0"].append((folder / "images" / path, int(label) - 1))
    return FoundImages(*parts, names)


def cars(record: ImageSet, folder: Path, keys: SetKeys) -> FoundImages:
    """cars_train/, cars_test/, and MATLAB files of names and labels from 1 in devkit/ and next to it."""
    labels = folder / record.loose[0].file
    if labels.is_file():
        require_md5("dataset.path", labels, record.loose[0].md5)
    meta = _read_matlab(folder / "devkit" / "cars_meta.mat", "class_names")
    names = tuple(str(one) for one in np.atleast_1d(meta))
    parts = []
    for part, file in (
        ("cars_train", folder / "devkit" / "cars_train_annos.mat"),
        ("cars_test", labels),
    ):
        rows = np.atleast_1d(_read_matlab(file, "annotations"))
        try:
            images = [(folder / part / str(row["fname"]), int(row["class"]) - 1) for row in rows]
        except (ValueError, TypeError, IndexError) as error:
            raise _unreadable(file, error, "annotations with fname and class") from error
        parts.append(images)
    _require_labels(parts, len(names), folder)
    return FoundImages(parts[0], parts[1], names)


def domainnet(record: ImageSet, folder: Path, keys: DomainNetKeys) -> FoundImages:
    """A folder for each domain, and its lists DOMAIN_train.txt and DOMAIN_test.txt of lines `path label`."""
    parts = []
    for part in ("train", "test"):
        file = _require_file(folder / f"{keys.domain}_{part}.txt", record)
        rows = [(path, label) for path, _, label in (line.rpartition(" ") for line in _lines(file))]
        odd = next((f"{path} {label}" for path, label in rows if not path or not label.isdecimal()), None)
        if odd is not None:
            raise ConfigError(f"dataset.path: {file}: found {show(odd)}, allowed: lines of a path, a space and a label")
        parts.append([(folder / path, int(label)) for path, label in rows])
    return FoundImages(parts[0], parts[1], _name_by_folder(record, parts))


def core50(record: ImageSet, folder: Path, keys: Core50Keys) -> FoundImages:
    """s1 to s11 (sessions), each with o1 to o50 (objects). The column session is the order of the benchmark's NI."""
    parts: tuple[list[tuple[Path, int]], list[tuple[Path, int]]] = ([], [])
    sessions: tuple[list[int], list[int]] = ([], [])
    for session in range(1, 12):
        for number in range(50):
            images = sorted(_require_folder(folder / f"s{session}" / f"o{number + 1}", record).glob("*.png"))
            tested = session in TEST_SESSIONS
            parts[tested].extend((image, number if keys.label == "object" else number // 5) for image in images)
            sessions[tested].extend([session] * len(images))
    names = CATEGORIES if keys.label == "category" else tuple(f"{one}{n}" for one in CATEGORIES for n in range(1, 6))
    columns = [{"session": np.array(numbers, np.int64)} for numbers in sessions]
    return FoundImages(*parts, names, columns=(columns[0], columns[1]))


def _domain(folder: Path, names: Iterable[str]) -> Path:
    tried = [folder / name for name in names]
    found = next((place for place in tried if place.is_dir()), None)
    if found is None:
        raise MissingData(f"dataset.domain: there is no folder {' or '.join(map(str, tried))}; {RELATIVE}")
    return found


def _require_folder(folder: Path, record: ImageSet) -> Path:
    if not folder.is_dir():
        raise MissingData(
            f"dataset.path: there is no folder {folder}, which {record.name} has; get it from {record.site}"
        )
    return folder


def _require_file(file: Path, record: ImageSet) -> Path:
    if not file.is_file():
        raise MissingData(f"dataset.path: there is no file {file}; get it from {record.site}")
    return file


def _find_list(one: SplitList, folder: Path) -> Path:
    """Return a published list: in the folder, or next to it. Raises MissingData or ConfigError: another version."""
    places = (folder / one.file, folder.parent / one.file)
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        known = f" (md5 {one.md5})" if one.md5 else ""
        problem = f"there is no file {places[0]}; get {one.file}{known} from {one.site}"
        raise MissingData(f"dataset.split: found lists, but {problem}, or set dataset.split=drawn")
    require_md5("dataset.split", found, one.md5)
    return found


def _read_yaml(file: Path, folder: Path) -> list[tuple[Path, int]]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(file.read_bytes(), Loader=loader)
        return [
            (_below(folder, str(path)), int(label))
            for path, label in zip(content["data"], content["targets"], strict=True)
        ]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise _unreadable(file, error, "a mapping with the lists data and targets, of the same length") from error


def _below(folder: Path, path: str) -> Path:
    """Return a listed image. Lists name it from other folders: the last two parts are its class and its file."""
    return folder.joinpath(*Path(path).parts[-2:])


def _name_by_folder(record: ImageSet, parts: Sequence[Labelled]) -> tuple[str, ...]:
    """Return each class's folder. Raises ConfigError unless each label has one folder, and all labels occur."""
    names: dict[int, str] = {}
    for path, label in (row for rows in parts for row in rows):
        if names.setdefault(label, path.parent.name) != path.parent.name:
            both = f"{names[label]} and {path.parent.name}"
            raise ConfigError(
                f"dataset.path: the lists of {record.name} have the label {label} for {both}, allowed: one"
            )
    _require_all(record, names, path.parent.parent)
    return tuple(names[label] for label in sorted(names))


def _require_all(record: ImageSet, names: dict[int, str], where: Path) -> None:
    if sorted(names) != [*range(len(names))]:
        absent = next(label for label in range(len(names) + 1) if label not in names)
        problem = f"no image has the label {absent}, allowed: every label from 0 to {max(names, default=0)}"
        raise ConfigError(f"dataset.path: {record.name} in {where}: {problem}")


def _require_labels(parts: Sequence[Labelled], classes: int, folder: Path) -> None:
    odd = next((row for rows in parts for row in rows if not 0 <= row[1] < classes), None)
    if odd is not None:
        raise ConfigError(f"dataset.path: {odd[0]} has the label {odd[1] + 1} in {folder}, allowed: 1 to {classes}")


def _read_matlab(file: Path, key: str) -> Any:
    if not file.is_file():
        raise MissingData(f"dataset.path: there is no file {file}; {RELATIVE}")
    try:
        return import_extra("scipy.io", "vision").loadmat(file, squeeze_me=True)[key]
    # SciPy raises NotImplementedError for a file of MATLAB 7.3, which it cannot read: the user gets one line
    except (OSError, ValueError, KeyError, TypeError, NotImplementedError) as error:
        raise _unreadable(file, error, f"a MATLAB file with {key}") from error


def _pairs(file: Path) -> list[tuple[str, str]]:
    """Return a number and what follows it of each line."""
    if not file.is_file():
        raise MissingData(f"dataset.path: there is no file {file}; {RELATIVE}")
    found = []
    for line in _lines(file):
        match = re.fullmatch(r"(\d+)\s+(\S.*)", line)
        if match is None:
            raise ConfigError(f"dataset.path: {file}: found {show(line)}, allowed: lines of a number and a value")
        found.append((match[1], match[2]))
    return found


def _lines(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _unreadable(file: Path, error: BaseException, allowed: str) -> ConfigError:
    return ConfigError(f"dataset.path: {file} cannot be read ({show(first_line(error))}), allowed: {allowed}")


def _said(record: ImageSet) -> str:
    return f"split by {' and '.join(one.file for one in record.lists)}, of {record.lists[0].site}"


def require_images(record: ImageSet, found: FoundImages) -> None:
    """Refuse listed images that are not there. Raises MissingData."""
    for part, images in (("training", found.train), ("test", found.test)):
        absent = [path for path, _ in images if not os.path.isfile(path)]
        if absent:
            problem = f"{len(absent):,} of the {len(images):,} {part} images are not there, the first {absent[0]}"
            raise MissingData(f"dataset.path: {record.name}: {problem}; {RELATIVE}")
