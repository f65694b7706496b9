"""Texts and their labels in files of JSON lines, and the split into training and test texts."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.config.error_text import show
from raysim.data.columns import as_column
from raysim.data.dataset import Array, draw_for_testing, require_memory
from raysim.data.paths import require_file
from raysim.system import seeding
from raysim.system.errors import ConfigError

LONGEST = 2**24  # bytes of a line
OFTEN = 2**26  # bytes between two checks that the texts fit into memory
DAMAGE = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts, their labels as int64 [N], and their columns [N]."""

    texts: Sequence[str]
    y: npt.NDArray[np.int64]
    columns: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class _Row:
    where: str  # key, file and line, for errors
    text: str
    label: int | str
    split: str | None
    columns: tuple[object, ...]


def read_texts(
    path: Path,
    test: Path | None,
    keys: tuple[str, str, str],
    test_fraction: float,
    seed: int,
    columns: Sequence[str] = (),
) -> tuple[tuple[Texts, Texts], tuple[int | str, ...]]:
    """Return the training and the test texts of JSON lines, and the labels in order of their numbers; see text_jsonl.

    `keys` are the JSON keys of the text, the label and the split, and `columns` those of further columns.

    Raises:
        ConfigError: see text_jsonl.
    """
    rows = _read("dataset.path", path, *keys, columns)
    test_rows = [] if test is None else _read("dataset.test", test, *keys, columns)
    _check_kinds([*rows, *test_rows])
    if test is None:
        parts = _split(rows, keys[2], test_fraction, seed)
    else:
        parts = _only("dataset.path", path, rows, "train"), _only("dataset.test", test, test_rows, "test")
    numbers = _number_labels(*parts)
    used = [*parts[0], *parts[1]]
    values = {name: _read_column(used, place, name) for place, name in enumerate(columns)}
    halves = slice(len(parts[0])), slice(len(parts[0]), None)
    train, testing = (
        Texts(
            [row.text for row in part],
            np.array([numbers[row.label] for row in part], np.int64),
            {name: column[half] for name, column in values.items()},
        )
        for part, half in zip(parts, halves, strict=True)
    )
    return (train, testing), tuple(numbers)


def _read_column(rows: Sequence[_Row], place: int, name: str) -> Array:
    """Return a further column of the lines."""
    return as_column(
        [row.columns[place] for row in rows], lambda index: f"{rows[index].where}, key {show(name)} (dataset.columns)"
    )


def _read(key: str, file: Path, text: str, label: str, split: str, columns: Sequence[str]) -> list[_Row]:
    """Return the non-empty lines of a file."""
    rows = []
    for number, line in _lines(key, file):
        where = f"{key}: {file}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"{where}: found {show(line.decode(errors='replace'))}, allowed: a JSON object in UTF-8"
            ) from error
        if not isinstance(row, dict):
            raise ConfigError(
                f"{where}: found {show(row)}, allowed: a JSON object, such as {{{text}: ..., {label}: ...}}"
            )
        if not isinstance(row.get(text), str):
            raise ConfigError(f"{where}: found {_describe_value(row, text)}, allowed: a text (dataset.text is its key)")
        value = row.get(label)
        if not isinstance(value, int | str) or isinstance(value, bool):
            allowed = "a whole number or a name (dataset.label is its key)"
            raise ConfigError(f"{where}: found {_describe_value(row, label)}, allowed: {allowed}")
        part = row.get(split)
        further = tuple(row.get(column) for column in columns)
        rows.append(_Row(where, row[text], value, None if part is None else str(part), further))
    if not rows:
        raise ConfigError(f"{key}: {file} holds no lines, allowed: a JSON object in each, with a text and a label")
    return rows


def _describe_value(row: Mapping[str, object], key: str) -> str:
    return f"{show(key)}: {show(row[key])}" if key in row else f"no key {show(key)} among {show([*row])}"


def _lines(key: str, file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the bytes of each non-empty line."""
    require_file(key, file)
    bytes_read, bytes_checked = 0, 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            number = 0
            while line := stream.readline(LONGEST):
                number, bytes_read = number + 1, bytes_read + len(line)
                if len(line) == LONGEST:
                    raise ConfigError(f"{key}: {file}, line {number}: found {LONGEST:,} bytes or more, allowed: fewer")
                if bytes_read > bytes_checked + OFTEN:  # a small file may unpack to any size
                    require_memory(bytes_read, key, file)
                    bytes_checked = bytes_read
                if line.strip():
                    yield number, line
    except DAMAGE as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ConfigError(f"{key}: {file} cannot be read ({reason}), allowed: JSON lines, in .gz if gzipped") from error


def _split(rows: Sequence[_Row], key: str, fraction: float, seed: int) -> tuple[list[_Row], list[_Row]]:
    """Return the training and the test lines: by their key `key`, or drawn if not both parts are named."""
    split_names = {row.split for row in rows}
    if {"train", "test"} <= split_names:
        for row in rows:
            if row.split is None:
                raise ConfigError(
                    f"{row.where}: found no {show(key)}, allowed: train, test or another, as other lines say"
                )
        train, test = ([row for row in rows if row.split == part] for part in ("train", "test"))
        return train, test
    by_label: dict[int | str, list[int]] = {}
    for index, row in enumerate(rows):
        if row.split in ("train", "test", None):
            by_label.setdefault(row.label, []).append(index)
    if not by_label:
        names = show(sorted(str(part) for part in split_names))
        raise ConfigError(
            f"dataset.split: found {names} in the lines' {show(key)}, allowed: train, test or no such key"
        )
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


def _only(key: str, file: Path, rows: Sequence[_Row], part: str) -> list[_Row]:
    """Return the lines of one part: those that say so, and those that say nothing."""
    kept = [row for row in rows if row.split in (part, None)]
    if not kept:
        names = show(sorted({str(row.split) for row in rows}))
        raise ConfigError(f"{key}: found only lines of {names} in {file}, allowed: lines of {part}, or without a split")
    return kept


def _check_kinds(rows: Sequence[_Row]) -> None:
    """Refuse a mix of numbers and names as labels."""
    kind = type(rows[0].label)
    for row in rows:
        if type(row.label) is not kind:
            kinds = "whole numbers" if kind is int else "names"
            raise ConfigError(f"{row.where}: found the label {show(row.label)}, allowed: {kinds}, as the first line's")


def _number_labels(train: Sequence[_Row], test: Sequence[_Row]) -> dict[int | str, int]:
    """Return each label's number: its index among the sorted labels of the training texts."""
    distinct: set[Any] = {row.label for row in train}  # all numbers or all names, so they can be sorted
    labels = {label: number for number, label in enumerate(sorted(distinct))}
    for row in test:
        if row.label not in labels:
            raise ConfigError(f"{row.where}: found the label {show(row.label)}, allowed: one that a training text has")
    return labels
