"""Texts and their labels in files of JSON lines, and the split into training and test texts."""

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from raysim.config.error_text import show
from raysim.data.class_order import in_class_order
from raysim.data.columns import as_column, as_texts
from raysim.data.dataset import Array, draw_for_testing
from raysim.data.paths import require_file
from raysim.data.split_names import TEST, TRAIN, choose_test, part_of
from raysim.system import seeding
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError, first_line

LONGEST = 2**24  # bytes of a line
ROW = 600  # bytes of what is kept of a line, without its text
OFTEN = 2**26  # bytes between two checks that the texts fit into memory
DAMAGE = (OSError, EOFError, zlib.error)


@dataclass(frozen=True)
class LineKeys:
    """The JSON keys of a line: of its text, label, split and client id, and those of further columns."""

    text: str = "text"
    label: str | None = "label"
    split: str = "split"
    client: str | None = None
    columns: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts, their labels as int64 [N], their client ids as texts [N], if they have some, and their columns [N]."""

    texts: Sequence[str]
    y: npt.NDArray[np.int64]
    clients: Array | None = None
    columns: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LabeledTexts:
    """Texts to train and to test on, their labels in order of their numbers, and what was read and left out."""

    train: Texts
    test: Texts
    labels: tuple[int | str, ...]
    notes: tuple[str, ...]


class PartedLine(Protocol):
    """What divides the lines: where a line is, its class, and the part that it says."""

    @property
    def where(self) -> str:
        """Key, file and line, for errors."""

    @property
    def label(self) -> int | str:
        """What the parts for training and testing have alike."""

    @property
    def split(self) -> str | None:
        """The part's name, see `part_of`."""


Row = TypeVar("Row", bound=PartedLine)


@dataclass(frozen=True)
class _Row:
    where: str  # key, file and line, for errors
    text: str
    label: int | str
    split: str | None
    client: str
    columns: tuple[object, ...]


def read_texts(path: Path, test: Path | None, keys: LineKeys, test_fraction: float, seed: int) -> LabeledTexts:
    """Return the texts of JSON lines to train and to test on; see text_jsonl.

    Raises:
        ConfigError: see text_jsonl.
    """
    notes: list[str] = []
    rows = _read("dataset.path", path, keys)
    test_rows = [] if test is None else _read("dataset.test", test, keys)
    _check_kinds([*rows, *test_rows])
    if test is None:
        parts = split_lines(rows, keys.split, test_fraction, seed, notes)
    else:
        testing = choose_test({row.split for row in test_rows if row.split}) or TEST
        parts = (
            only_part("dataset.path", path, rows, TRAIN, notes),
            only_part("dataset.test", test, test_rows, testing, notes),
        )
    numbers = _number_labels(*parts)
    used = [*parts[0], *parts[1]]
    values = {name: _read_column(used, place, name) for place, name in enumerate(keys.columns)}
    clients = None if keys.client is None else as_texts([row.client for row in used], lambda row: used[row].where)
    halves = slice(len(parts[0])), slice(len(parts[0]), None)
    train, tests = (
        Texts(
            [row.text for row in part],
            np.array([numbers[row.label] for row in part], np.int64),
            None if clients is None else clients[half],
            {name: column[half] for name, column in values.items()},
        )
        for part, half in zip(parts, halves, strict=True)
    )
    return LabeledTexts(train, tests, tuple(numbers), tuple(notes))


def _read_column(rows: Sequence[_Row], place: int, name: str) -> Array:
    """Return a further column of the lines."""
    return as_column(
        [row.columns[place] for row in rows], lambda index: f"{rows[index].where}, key {show(name)} (dataset.columns)"
    )


def _read(key: str, file: Path, keys: LineKeys) -> list[_Row]:
    """Return the non-empty lines of a file."""
    rows = []
    for number, line in read_lines(key, file):
        where = f"{key}: {file}, line {number}"
        row = load_line(where, line)
        if not isinstance(row, dict):
            raise ConfigError(
                f"{where}: found {show(row)}, allowed: a JSON object, such as {{{keys.text}: ..., {keys.label}: ...}}"
            )
        if not isinstance(row.get(keys.text), str):
            found = describe_value(row, keys.text)
            raise ConfigError(f"{where}: found {found}, allowed: a text (dataset.text is its key)")
        value = 0 if keys.label is None else row.get(keys.label)
        if not isinstance(value, int | str) or isinstance(value, bool) or value == "":
            allowed = "a whole number or a name (dataset.label is its key)"
            raise ConfigError(f"{where}: found {describe_value(row, str(keys.label))}, allowed: {allowed}")
        part = row.get(keys.split)
        client = "" if keys.client is None else client_of(where, row, keys.client)
        further = tuple(row.get(column) for column in keys.columns)
        rows.append(_Row(where, row[keys.text], value, None if part is None else part_of(str(part)), client, further))
    if not rows:
        raise ConfigError(f"{key}: {file} holds no lines, allowed: a JSON object in each, with a text and a label")
    return rows


def load_line(where: str, line: bytes) -> object:
    """Return what a line holds."""
    try:
        row = json.loads(line, object_pairs_hook=once_each)
        if b"\\u" in line:
            json.dumps(row, ensure_ascii=False).encode()  # half of a surrogate pair is no text
        return row
    except (ValueError, RecursionError) as error:
        found = show(line.decode(errors="replace"))
        reason = f" ({error})" if isinstance(error, TwoValues) else ""
        raise ConfigError(f"{where}: found {found}{reason}, allowed: a JSON object in UTF-8") from error


class TwoValues(ValueError):
    """A JSON object has a key twice."""


def once_each(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object of these pairs of keys and values. Raises TwoValues where a key is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise TwoValues(f"the key {show(counts.most_common(1)[0][0])} twice")
    return found


def client_of(where: str, row: Mapping[str, object], key: str) -> str:
    """Return the client id of a row, or raise ConfigError."""
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        allowed = "a whole number or a text that is not empty (dataset.client is its key)"
        raise ConfigError(f"{where}: found {describe_value(row, key)}, allowed: {allowed}")
    return str(value)


def describe_value(row: Mapping[str, object], key: str) -> str:
    """Return what a row has under a key, or its keys, for an error."""
    return f"{show(key)}: {show(row[key])}" if key in row else f"no key {show(key)} among {show([*row])}"


def read_lines(key: str, file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the bytes of each non-empty line."""
    require_file(key, file)
    bytes_read, bytes_checked = 0, 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            number, kept = 0, 0
            while line := stream.readline(LONGEST):
                number, bytes_read = number + 1, bytes_read + len(line)
                if len(line) == LONGEST:
                    raise ConfigError(f"{key}: {file}, line {number}: found {LONGEST:,} bytes or more, allowed: fewer")
                if bytes_read > bytes_checked + OFTEN:  # a small file may unpack to any size
                    require_memory(bytes_read + ROW * kept, key, file)
                    bytes_checked = bytes_read
                if line.strip():
                    kept += 1
                    yield number, line
    except DAMAGE as error:
        reason = first_line(error)
        raise ConfigError(f"{key}: {file} cannot be read ({reason}), allowed: JSON lines, in .gz if gzipped") from error


def split_lines(
    rows: Sequence[Row], key: str, fraction: float, seed: int, notes: list[str]
) -> tuple[list[Row], list[Row]]:
    """Return the training and the test lines: by their key `key`, or drawn if not both parts are named."""
    split_names = {row.split for row in rows}
    testing_name = choose_test({name for name in split_names if name})
    if TRAIN in split_names and testing_name is not None:
        for row in rows:
            if row.split is None:
                raise ConfigError(
                    f"{row.where}: found no {show(key)}, allowed: train, test or another, as other lines say"
                )
        train, test = ([row for row in rows if row.split == part] for part in (TRAIN, testing_name))
        _note_parts(rows, (TRAIN, testing_name), testing_name, "", notes)
        return train, test
    by_label: dict[int | str, list[int]] = {}
    for index, row in enumerate(rows):
        if row.split in (TRAIN, TEST, None):
            by_label.setdefault(row.label, []).append(index)
    if not by_label:
        names = show(sorted(str(part) for part in split_names))
        raise ConfigError(
            f"dataset.split: found {names} in the lines' {show(key)}, allowed: train, test or no such key"
        )
    _note_parts(rows, (TRAIN, TEST, None), TEST, "", notes)
    testing: set[int] = set()
    for label, numbers in by_label.items():
        if len(numbers) < 2:
            allowed = "two and more, one for testing"
            raise ConfigError(
                f"{rows[numbers[0]].where}: found the only text of the label {show(label)}, allowed: {allowed}"
            )
        drawn = draw_for_testing(len(numbers), fraction, seeding.generator(seed, "text_jsonl", ascii(label)))
        testing |= {numbers[place] for place in drawn}
    used = sorted(index for numbers in by_label.values() for index in numbers)
    return [rows[index] for index in used if index not in testing], [rows[index] for index in sorted(testing)]


def only_part(key: str, file: Path, rows: Sequence[Row], part: str, notes: list[str]) -> list[Row]:
    """Return the lines of one part: those that say so, and those that say nothing."""
    kept = [row for row in rows if row.split in (part, None)]
    if not kept:
        names = show(sorted({str(row.split) for row in rows}))
        raise ConfigError(f"{key}: found only lines of {names} in {file}, allowed: lines of {part}, or without a split")
    _note_parts(rows, (part, None), TEST if part == TRAIN else part, f" of {key}", notes)
    return kept


def _note_parts(
    rows: Sequence[PartedLine], used: tuple[str | None, ...], testing: str, which: str, notes: list[str]
) -> None:
    """Add the notes on the parts: a part for validation that is tested on, and lines that are left out."""
    counts = Counter(row.split for row in rows)
    if testing != TEST:
        notes.append(f"tested on {counts[testing]:,} lines of {show(testing)}, as none say test")
    notes += [f"left out{which}: {count:,} lines of {show(part)}" for part, count in counts.items() if part not in used]


def _check_kinds(rows: Sequence[_Row]) -> None:
    """Refuse a mix of numbers and names as labels."""
    kind = type(rows[0].label)
    for row in rows:
        if type(row.label) is not kind:
            kinds = "whole numbers" if kind is int else "names"
            raise ConfigError(f"{row.where}: found the label {show(row.label)}, allowed: {kinds}, as the first line's")


def _number_labels(train: Sequence[_Row], test: Sequence[_Row]) -> dict[int | str, int]:
    """Return each label's number: its index among the labels of the training texts, in order."""
    distinct: set[Any] = {row.label for row in train}  # all numbers or all names, so they can be sorted
    ordered = in_class_order(distinct) if isinstance(train[0].label, str) else sorted(distinct)
    labels: dict[int | str, int] = {label: number for number, label in enumerate(ordered)}
    for row in test:
        if row.label not in labels:
            raise ConfigError(f"{row.where}: found the label {show(row.label)}, allowed: one that a training text has")
    return labels
