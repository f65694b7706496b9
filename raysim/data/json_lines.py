"""Texts and their labels in files of JSON lines, and the split into those to train on and those to test on."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.config.error_text import show
from raysim.data.dataset import MissingData, draw_for_testing, require_memory
from raysim.system import seeding
from raysim.system.errors import ConfigError

LONGEST = 2**24  # bytes of a line
OFTEN = 2**26  # bytes read, after which it is looked again whether they fit into memory
DAMAGE = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts, and the numbers of their labels: int64 [N]."""

    texts: Sequence[str]
    y: npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Row:
    where: str  # key, file and line, for errors
    text: str
    label: int | str
    split: str | None


def read_texts(
    path: Path, test: Path | None, keys: tuple[str, str, str], test_fraction: float, seed: int
) -> tuple[tuple[Texts, Texts], tuple[int | str, ...]]:
    """Return the texts of JSON lines to train on and to test on, and the labels by number; see text_jsonl.

    `keys` are those of the text, the label and the split.

    Raises:
        ConfigError: see text_jsonl.
    """
    rows = _read("dataset.path", path, *keys)
    others = [] if test is None else _read("dataset.test", test, *keys)
    _check_kinds([*rows, *others])
    parts = _split(rows, keys[2], test_fraction, seed) if test is None else (rows, others)
    numbers = _number_labels(*parts)
    train, held = (
        Texts([row.text for row in part], np.array([numbers[row.label] for row in part], np.int64)) for part in parts
    )
    return (train, held), tuple(numbers)


def _read(key: str, file: Path, text: str, label: str, split: str) -> list[_Row]:
    """Return the lines of a file; empty ones are left out."""
    rows = []
    for number, line in _lines(key, file):
        where = f"{key}: {file}, line {number}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"{where}: found {show(line.decode(errors='replace'))}, allowed: a JSON object"
            ) from error
        if not isinstance(found, dict):
            raise ConfigError(
                f"{where}: found {show(found)}, allowed: a JSON object, such as {{{text}: ..., {label}: ...}}"
            )
        if not isinstance(found.get(text), str):
            raise ConfigError(f"{where}: found {_found(found, text)}, allowed: a text (dataset.text is its key)")
        named = found.get(label)
        if not isinstance(named, int | str) or isinstance(named, bool):
            allowed = "a whole number or a name (dataset.label is its key)"
            raise ConfigError(f"{where}: found {_found(found, label)}, allowed: {allowed}")
        part = found.get(split)
        rows.append(_Row(where, found[text], named, None if part is None else str(part)))
    if not rows:
        raise ConfigError(f"{key}: {file} holds no lines, allowed: a JSON object in each, with a text and a label")
    return rows


def _found(row: Mapping[str, object], key: str) -> str:
    return f"{show(key)}: {show(row[key])}" if key in row else f"no key {show(key)} beside {show([*row])}"


def _lines(key: str, file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the bytes of every line that is not empty."""
    if not file.is_file():
        raise MissingData(f"{key}: there is no file {file}; a relative path starts at dataset.root")
    read, looked = 0, 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            number = 0
            while line := stream.readline(LONGEST):
                number, read = number + 1, read + len(line)
                if len(line) == LONGEST:
                    raise ConfigError(f"{key}: {file}, line {number}: found {LONGEST:,} bytes or more, allowed: fewer")
                if read > looked + OFTEN:  # a small file may unpack to any size
                    require_memory(read, key, file)
                    looked = read
                if line.strip():
                    yield number, line
    except DAMAGE as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ConfigError(f"{key}: {file} cannot be read ({reason}), allowed: JSON lines, in .gz if gzipped") from error


def _split(rows: Sequence[_Row], key: str, fraction: float, seed: int) -> tuple[list[_Row], list[_Row]]:
    """Return the lines to train on and to test on, as they say it, or else drawn."""
    said = {row.split for row in rows}
    if {"train", "test"} <= said:
        for row in rows:
            if row.split is None:
                raise ConfigError(
                    f"{row.where}: found no {show(key)}, allowed: train, test or another, as other lines say"
                )
        train, test = ([row for row in rows if row.split == part] for part in ("train", "test"))
        return train, test
    by_label: dict[int | str, list[int]] = {}
    for number, row in enumerate(rows):
        if row.split in ("train", "test", None):
            by_label.setdefault(row.label, []).append(number)
    if not by_label:
        found = show(sorted(str(part) for part in said))
        raise ConfigError(
            f"dataset.split: found {found} in the lines' {show(key)}, allowed: train, test or no such key"
        )
    held: set[int] = set()
    for label, own in by_label.items():
        if len(own) < 2:
            allowed = "two and more, one for testing"
            raise ConfigError(
                f"{rows[own[0]].where}: found the only text of the label {show(label)}, allowed: {allowed}"
            )
        drawn = draw_for_testing(len(own), fraction, seeding.generator(seed, "text_jsonl", ascii(label)))
        held |= {own[place] for place in drawn}
    used = sorted(number for own in by_label.values() for number in own)
    return [rows[number] for number in used if number not in held], [rows[number] for number in sorted(held)]


def _check_kinds(rows: Sequence[_Row]) -> None:
    """Refuse labels of which some are numbers and some names."""
    kind = type(rows[0].label)
    for row in rows:
        if type(row.label) is not kind:
            words = "whole numbers" if kind is int else "names"
            raise ConfigError(f"{row.where}: found the label {show(row.label)}, allowed: {words}, as the first line's")


def _number_labels(train: Sequence[_Row], test: Sequence[_Row]) -> dict[int | str, int]:
    """Return the labels' numbers: their places among those of the training texts, sorted."""
    every: set[Any] = {row.label for row in train}  # of one kind, so that they have an order
    labels = {label: number for number, label in enumerate(sorted(every))}
    for row in test:
        if row.label not in labels:
            raise ConfigError(f"{row.where}: found the label {show(row.label)}, allowed: one that a training text has")
    return labels
