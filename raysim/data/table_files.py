"""Tables in files: the columns of a CSV file, with the line of every value for errors, and what all tables share."""

import csv
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from raysim.config.error_text import nearest, show
from raysim.data.columns import as_texts, read_number
from raysim.data.dataset import Array, as_float32
from raysim.data.paths import require_file
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError, first_line

DAMAGE = (OSError, EOFError, zlib.error, UnicodeDecodeError)
OFTEN = 2**24  # letters between two checks that a table fits into memory
LONGEST = 2**24  # letters of a record
MOST_COLUMNS = 100_000
LISTED = 200  # letters of a list of columns in an error
CELL, TEXT = 32, 60  # bytes of a cell: a reference and a number in each of three arrays; and of a text, without letters

INDEX = re.compile(r"(Unnamed: 0(\.\d+)?|__index_level_\d+__)", re.ASCII)
"""The names that pandas gives to an index without one, when it writes it and reads it again."""
WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))\.0*", re.ASCII)
"""A whole number that pandas wrote as a float, which it does once a value of the column is missing."""
TRUTH = ("true", "false")


@dataclass(frozen=True)
class Roles:
    """The columns that a config names, and those of them that it leaves out."""

    named: Collection[str] = ()
    ignored: Collection[str] = ()

    def ignored_of(self, names: Sequence[str]) -> Collection[str]:
        """Return the columns among these that are left out, each once."""
        return dict.fromkeys(name for name in names if name in self.ignored)


@dataclass(frozen=True)
class TableFile:
    """The file of some rows: its config key, its path, each row's line, from 1, and what these numbers count."""

    key: str
    file: Path
    lines: Sequence[int]
    counted: str = "line"


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of one or several files, column by column. Values are texts, numbers or None."""

    sources: Sequence[TableFile]
    columns: Mapping[str, Sequence[object]]
    index: Collection[str] = ()
    """The columns that hold pandas' index. They are left out unless a key names them."""
    ignored: Collection[str] = ()
    """The columns that the config leaves out, of those that the files have."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The config key that names a column, for errors."""
    unused: Collection[str] = ()
    """The columns of later files that the first one lacks."""
    missing: frozenset[str] = frozenset()
    """The texts that stand for a missing value, in addition to the empty one."""
    missing_numbers: frozenset[float] = frozenset()
    """The numbers among these texts: -999 stands for -999.0, too, which pandas writes, and for a number in Parquet."""

    def __len__(self) -> int:
        return sum(len(source.lines) for source in self.sources)

    def where(self, column: str, row: int) -> str:
        """Return the beginning of an error message about a value."""
        named = f" ({self.keys[column]})" if column in self.keys else ""
        for source in self.sources:
            if row < len(source.lines):
                place = f"{source.file}, {source.counted} {source.lines[row]}"
                return f"{source.key}: {place}, column {show(column)}{named}"
            row -= len(source.lines)
        raise IndexError(row)

    def require(self, key: str, name: str) -> None:
        """Refuse a column that the table does not have. `key` is the config key that names it."""
        if name not in self.columns and name not in self.ignored:
            file, known = self.sources[-1].file, [*self.columns, *self.ignored]
            raise ConfigError(
                f"{key}: found {show(name)}, allowed: one of {show(known, LISTED)} in {file}{nearest(name, known)}"
            )

    def is_missing(self, value: object) -> bool:
        """Return whether a value is missing: None, NaN, the empty text, or a text or number that stands for one."""
        if _is_empty(value) or value in self.missing:
            return True
        return bool(self.missing_numbers) and read_number(value) in self.missing_numbers

    def count_missing(self, name: str) -> int:
        """Return how many values of a column are missing."""
        counts = Counter(self.columns[name])
        return sum(count for value, count in counts.items() if self.is_missing(value))

    def require_values(self, name: str, allowed: str) -> None:
        """Refuse a missing value. `allowed` is the end of the error message.

        Raises:
            ConfigError: a value is missing. The message has its line.
        """
        row = next((row for row, value in enumerate(self.columns[name]) if self.is_missing(value)), None)
        if row is not None:
            raise ConfigError(f"{self.where(name, row)}: found {self._describe(row, name)}, allowed: {allowed}")

    def numbers(self, name: str, or_missing: bool = False, advice: str = "") -> Array:
        """Return a column of numbers: float64 [n], with NaN for missing ones if `or_missing`.

        `advice` is the end of an error message.

        Raises:
            ConfigError: a value is not a finite number, or is too large for float32. The message has its line.
        """
        values = self.columns[name]
        found = {value: None if self.is_missing(value) else read_number(value) for value in dict.fromkeys(values)}
        if None in found.values():
            for row, value in enumerate(values):
                if found[value] is None and not (or_missing and self.is_missing(value)):
                    truth = isinstance(value, str) and value.lower() in TRUTH
                    advised = "; name a column of truth values in dataset.categories" if truth else advice
                    described = self._describe(row, name)
                    raise ConfigError(f"{self.where(name, row)}: found {described}, allowed: a number{advised}")
        numbers = np.array([found[value] for value in values], np.float64)  # None becomes NaN
        as_float32(numbers, lambda index: self.where(name, index[0]))
        return numbers

    def texts(self, name: str) -> Array:
        """Return a column as texts (str) [n]. A missing value is the empty text; a whole number has no decimal point.

        Raises:
            ConfigError: the texts do not fit into memory.
        """
        values = self.columns[name]
        found = {value: "" if self.is_missing(value) else _as_text(value) for value in dict.fromkeys(values)}
        return as_texts([found[value] for value in values], lambda row: self.where(name, row))

    def _describe(self, row: int, name: str) -> str:
        """Return a value for an error message."""
        value = self.columns[name][row]
        if _is_empty(value):
            return "nothing"
        return show(value) + ", one of dataset.missing_values" * self.is_missing(value)


def join(tables: Sequence[Table]) -> Table:
    """Return the rows of several tables, one after the other, with the columns of the first.

    Raises:
        ConfigError: a later table lacks a column of the first.
    """
    first = tables[0]
    for table in tables[1:]:
        for name in first.columns:
            table.require(table.sources[0].key, name)
    if len(tables) == 1:
        return first
    columns = {name: [value for table in tables for value in table.columns[name]] for name in first.columns}
    return replace(
        first,
        sources=[source for table in tables for source in table.sources],
        columns=columns,
        index={name for table in tables for name in table.index},
        ignored=dict.fromkeys(name for table in tables for name in table.ignored),
        unused={name for table in tables for name in table.columns} - {*first.columns},
    )


def read_csv(key: str, file: Path, roles: Roles, delimiter: str) -> Table:
    """Return the table in a CSV file with a header (RFC 4180; UTF-8, gzipped if its name ends in .gz).

    A first column without a name is the index that pandas writes.

    Raises:
        MissingData: there is no such file.
        ConfigError: the file cannot be read, or its header names a column twice or not at all. Or a line is too long,
            or has more or fewer fields than the header.
    """
    require_file(key, file)
    if delimiter in '"\r\n':
        raise ConfigError(f"dataset.delimiter: found {show(delimiter)}, allowed: no quote and no line break")
    lines: list[int] = []
    texts: dict[str, str] = {}  # equal texts are stored once
    stored, checked = 0, 0
    try:
        with io.TextIOWrapper(
            gzip.open(file) if file.suffix == ".gz" else file.open("rb"), encoding="utf-8-sig", newline=""
        ) as stream:
            source = _Lines(f"{key}: {file}", stream)
            records = _records(source, csv.reader(source, delimiter=delimiter, strict=True))
            names = [name.strip() for name in next(records, (1, []))[1]]
            allowed = f"a name for each column, separated by {show(delimiter)} (dataset.delimiter)"
            index = {name for place, name in enumerate(names) if INDEX.fullmatch(name) or not (name or place)}
            kept = choose_columns(f"{key}: {file}, line 1", names, index, roles, allowed)
            if len(names) == 1:  # most likely the whole line
                raise ConfigError(f"{key}: {file}, line 1: found one column, {show(names[0])}, allowed: {allowed}")
            columns: dict[str, list[str]] = {name: [] for name in kept}
            places = [(columns[name], place) for name, place in kept.items()]
            for line, fields in records:
                if len(fields) != len(names):
                    allowed = f"{len(names)}, as the header has ({show(names)}; dataset.delimiter is between fields)"
                    raise ConfigError(f"{key}: {file}, line {line}: found {len(fields)} fields, allowed: {allowed}")
                for column, place in places:
                    text = fields[place].strip()
                    if text not in texts:
                        texts[text] = text
                        stored += TEXT + len(text)
                    column.append(texts[text])
                lines.append(line)
                if source.read > checked + OFTEN:
                    require_memory(CELL * (len(kept) + 1) * len(lines) + stored, key, file)
                    checked = source.read
    except DAMAGE as error:
        reason = first_line(error)
        raise ConfigError(
            f"{key}: {file} cannot be read ({reason}), allowed: CSV in UTF-8, in .gz if gzipped"
        ) from error
    require_rows(key, file, len(lines))
    return Table([TableFile(key, file, lines)], columns, index - {*roles.named}, roles.ignored_of(names))


class _Lines:
    """The lines of a CSV file, for csv.reader. It reads on while a field in quotes is open, so a record is bounded."""

    def __init__(self, where: str, stream: io.TextIOWrapper) -> None:
        self.where, self._stream = where, stream
        self.number = 0
        """The lines that were read."""
        self.read = 0
        """Their letters."""
        self.record = 0
        """The letters that had been read before the record."""

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._stream.readline(LONGEST)
        if not line:
            raise StopIteration
        self.number, self.read = self.number + 1, self.read + len(line)
        if self.read - self.record >= LONGEST:
            problem = f"found {LONGEST:,} letters or more in a row of the table"
            raise ConfigError(f"{self.where}, line {self.number}: {problem}, allowed: fewer")
        return line


def _records(source: _Lines, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a record's first line, from 1, and its fields. Empty lines are left out."""
    while True:
        line, source.record = source.number + 1, source.read
        try:
            fields = next(reader, None)
        except csv.Error as error:
            allowed = "fields that are in double quotes if they have a quote, a delimiter or a line break"
            raise ConfigError(
                f"{source.where}, line {line}: found a broken line ({error}), allowed: {allowed}"
            ) from error
        if fields is None:
            return
        if fields:
            yield line, fields


def choose_columns(
    where: str, names: Sequence[str], index: Collection[str], roles: Roles, allowed: str
) -> dict[str, int]:
    """Return the columns to read and their places: all but those that are ignored or are pandas' index.

    `where` and `allowed` are the beginning and the end of an error message.

    Raises:
        ConfigError: there are no columns or too many, a name is there twice, or a column has none.
    """
    if not names:
        raise ConfigError(f"{where}: found no names of columns, allowed: {allowed}")
    if len(names) > MOST_COLUMNS:
        raise ConfigError(f"{where}: found {len(names):,} columns, allowed: {MOST_COLUMNS:,} at most")
    kept: dict[str, int] = {}
    seen: set[str] = set()
    for place, name in enumerate(names):
        if not name and name not in roles.ignored and (place or name not in index):
            advice = "dataset.ignore=[''] leaves it out"
            raise ConfigError(
                f"{where}: found a column without a name, column {place + 1}, allowed: {allowed}; {advice}"
            )
        if name and name in seen:
            raise ConfigError(f"{where}: found the column {show(name)} twice, allowed: {allowed}")
        seen.add(name)
        if name not in roles.ignored and (name in roles.named or name not in index):
            kept[name] = place
    return kept


def require_rows(key: str, file: Path, rows: int) -> None:
    """Refuse a table without rows. `key` is the config key that names its `file`."""
    if not rows:
        raise ConfigError(f"{key}: {file} holds no rows, allowed: at least one below the names of the columns")


def _is_empty(value: object) -> bool:
    return value is None or value == "" or value != value


def _as_text(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    whole = WHOLE.fullmatch(text := str(value))
    return text if whole is None else whole[1] if whole[1] != "-0" else "0"
