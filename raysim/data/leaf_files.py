"""LEAF's JSON files: users with lists of samples and labels, in the folders train and test."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from raysim.config.error_text import show
from raysim.data.dataset import Array, as_float32
from raysim.data.json_lines import once_each
from raysim.data.split_names import TEST, TRAIN, VALIDATION, choose_test
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError, first_line

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
SHAKESPEARE = 79  # samples of each user that LEAF drops between training and test, and counts in the test file
ITEM, LIST, TEXT = 40, 72, 60  # bytes of a number and its place in a list; of an empty list or object; and of a text


@dataclass(frozen=True, eq=False)
class LeafSplit:
    """The samples of a split, user by user. A list of numbers is float32 [D]; other samples and labels are as read."""

    x: list[Any] = field(default_factory=list)
    y: list[Any] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    """The user of each sample."""
    groups: list[str | None] = field(default_factory=list)
    """What `hierarchies` says of the user of each sample, or None."""
    first: dict[str, tuple[Path, int]] = field(default_factory=dict)
    """The file of each user, and the place of the user's first sample."""
    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def where(self, row: int, part: str) -> str:
        """Return the beginning of an error message about the `part`, x or y, of a sample."""
        file, first = self.first[self.users[row]]
        return f"{_where(file, self.users[row])}, {part}[{row - first}]"


def read_leaf(folder: Path) -> tuple[LeafSplit, LeafSplit]:
    """Return the training and the test samples of LEAF's folders train and test. See `leaf`.

    Without a folder test, one for validation is used and noted. Files are read in the order of their names.

    Raises:
        ConfigError: a folder is missing, a file is no JSON of LEAF's, or the samples do not fit into memory.
    """
    parts = [name for name in (TRAIN, TEST, *VALIDATION) if (folder / name).is_dir()]
    testing = choose_test(parts)
    if TRAIN not in parts or testing is None:
        within = folder / "data"
        hint = f"; is {within} the path that was meant?" if (within / TRAIN).is_dir() else ""
        problem = f"{folder} has no folder {TRAIN if TRAIN not in parts else TEST}"
        raise ConfigError(f"dataset.path: {problem}, allowed: both folders that LEAF's preprocess.sh writes{hint}")
    train, test = _read_split(folder / TRAIN), _read_split(folder / testing)
    if testing != TEST:
        test.notes.insert(0, f"tested on the folder {testing}, as there is no folder test")
    unused = [name for name in parts if name not in (TRAIN, testing)]
    if unused:
        test.notes.append(f"left out the folder{'s' * (len(unused) > 1)} {', '.join(unused)}")
    return train, test


def _read_split(folder: Path) -> LeafSplit:
    split, held = LeafSplit(), 0
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    files = [entry for entry in entries if entry.suffix == ".json" and entry.is_file()]
    if not files:
        raise ConfigError(f"dataset.path: {folder} holds no .json file, allowed: one or more of LEAF's")
    if len(files) < len(entries):
        split.notes.append(f"used {len(files)} of {len(entries)} entries of the folder {folder.name}, the .json files")
    larger: dict[str, int] = {}
    empty = 0
    for file in files:
        document = _load(file, held)
        counts, groups = _counts(file, document), _groups(file, document, split.notes)
        for number, user in enumerate(_users(file, document)):
            x, y = _samples(file, user, document["user_data"])
            if user in split.first:
                raise ConfigError(f"{_where(file, user)}: found the user in {split.first[user][0]} too, allowed: once")
            if counts is not None and counts[number] < len(x):
                problem = f"found {len(x):,} samples, and {show(counts[number])} in num_samples"
                raise ConfigError(f"{_where(file, user)}: {problem}, allowed: the same number")
            if counts is not None and counts[number] > len(x):
                larger[user] = counts[number] - len(x)
            empty += not x
            split.first[user] = file, len(split.x)
            split.x.extend(_compact(value, file, user, place) for place, value in enumerate(x))
            split.y.extend(y)
            split.users.extend([user] * len(x))
            split.groups.extend([None if groups is None else groups[number]] * len(x))
        empty += _require_no_others(file, document)
        held += file.stat().st_size
    if empty:
        split.notes.append(f"left out {empty:,} users of the folder {folder.name} without samples")
    _compare_counts(folder, split, larger)
    if not split.x:
        raise ConfigError(f"dataset.path: {folder} holds no samples, allowed: at least one")
    return split


def _load(file: Path, held: int) -> Mapping[str, Any]:
    """Return what a file holds. `held` is the memory that the samples of other files take."""
    try:
        require_memory(held + file.stat().st_size, "dataset.path", file)
        content = file.read_bytes()
        lists, texts = content.count(b"[") + content.count(b"{"), content.count(b'"') // 2
        require_memory(
            held + len(content) + ITEM * content.count(b",") + LIST * lists + TEXT * texts, "dataset.path", file
        )
        document = json.loads(content, object_pairs_hook=once_each)
        if SURROGATE.search(content):
            json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except (OSError, ValueError, RecursionError) as error:
        reason = show(first_line(error))
        raise ConfigError(f"dataset.path: {file} cannot be read ({reason}), allowed: a JSON object in UTF-8") from error
    if not isinstance(document, dict):
        raise ConfigError(f"dataset.path: {file}: found {show(document)}, allowed: an object with users and user_data")
    for key, kind, name in (("users", list, "a list"), ("user_data", dict, "an object")):
        if not isinstance(document.get(key), kind):
            found = show(document[key]) if key in document else f"no {key} among {show([*document])}"
            raise ConfigError(f"dataset.path: {file}: found {found}, allowed: {name} {key}, as LEAF's files have")
    return document


def _users(file: Path, document: Mapping[str, Any]) -> Iterator[str]:
    for number, user in enumerate(document["users"]):
        if not isinstance(user, str) or not user or user not in document["user_data"]:
            allowed = "a text that is not empty and is a key of user_data"
            raise ConfigError(f"dataset.path: {file}, users[{number}]: found {show(user)}, allowed: {allowed}")
        yield user


def _samples(file: Path, user: str, data: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    found = data[user]
    if not isinstance(found, dict) or not all(isinstance(found.get(key), list) for key in ("x", "y")):
        raise ConfigError(f"{_where(file, user)}: found {show(found)}, allowed: an object with the lists x and y")
    x, y = found["x"], found["y"]
    if len(x) != len(y):
        raise ConfigError(f"{_where(file, user)}: found {len(x):,} x and {len(y):,} y, allowed: one y for each x")
    return x, y


def _require_no_others(file: Path, document: Mapping[str, Any]) -> int:
    """Return the number of further users in user_data, who have no samples: LEAF's splitting leaves such."""
    others = document["user_data"].keys() - {*document["users"]}
    for user in sorted(others):
        if _samples(file, user, document["user_data"])[0]:
            raise ConfigError(f"{_where(file, user)}: found samples of a user who is not in users, allowed: those only")
    return len(others)


def _counts(file: Path, document: Mapping[str, Any]) -> Sequence[int] | None:
    counts = document.get("num_samples")
    if counts is None:
        return None
    whole = isinstance(counts, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in counts)
    if not whole or len(counts) != len(document["users"]):
        allowed = f"a list of {len(document['users']):,} whole numbers, one for each user"
        raise ConfigError(f"dataset.path: {file}, num_samples: found {show(counts)}, allowed: {allowed}")
    return [*counts]


def _groups(file: Path, document: Mapping[str, Any], notes: list[str]) -> Sequence[str] | None:
    groups, users = document.get("hierarchies"), document["users"]
    if groups is None:
        return None
    if not isinstance(groups, list) or not all(isinstance(one, str) and one for one in groups):
        allowed = "a list of texts, one for each user"
        raise ConfigError(f"dataset.path: {file}, hierarchies: found {show(groups)}, allowed: {allowed}")
    if len(groups) != len(users):  # LEAF's splitting removes users, and leaves hierarchies as they were
        notes.append(f"left out hierarchies of {show(file.name)}: {len(groups):,} for {len(users):,} users")
        return None
    return groups


def _compare_counts(folder: Path, split: LeafSplit, larger: Mapping[str, int]) -> None:
    """Note or doubt numbers of samples that are larger than the lists. LEAF's own scripts write such numbers."""
    if not larger:
        return
    problem = f"num_samples in the folder {folder.name} is larger than the lists of {len(larger):,} users"
    if folder.name != TRAIN and {*larger.values()} == {SHAKESPEARE}:
        split.notes.append(f"{problem} by {SHAKESPEARE}, as in LEAF's Shakespeare; the lists count")
        return
    user, more = next(iter(larger.items()))
    split.doubts.append(
        f"dataset.path: {problem}, by {more:,} for {show(user)}; the lists count; are the files complete?"
    )


def _compact(value: Any, file: Path, user: str, place: int) -> Any:
    """Return a list of numbers as float32 [D], and anything else as it is."""
    if not isinstance(value, list) or not value or not {*map(type, value)} <= {int, float}:
        return value
    where = f"{_where(file, user)}, x[{place}]"
    try:
        numbers: Array = np.array(value, np.float64)
    except OverflowError:
        numbers = np.array([np.inf])
    if not np.isfinite(numbers).all():
        raise ConfigError(f"{where}: found a number that is not finite, allowed: finite numbers")
    return as_float32(numbers, lambda index: f"{where}[{index[0]}]")


def _where(file: Path, user: str) -> str:
    return f"dataset.path: {file}, user {show(user)}"
