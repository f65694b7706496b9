"""Tables in files: the columns of a CSV file or of a Parquet file, with the line of every value for errors."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from raysim.config.error_text import nearest, show
from raysim.data.columns import read_number
from raysim.data.dataset import Array, as_float32, require_memory
from raysim.data.paths import require_file
from raysim.system.errors import ConfigError
from raysim.system.importing import import_extra

DAMAGE = (OSError, EOFError, zlib.error, UnicodeDecodeError)
OFTEN = 50_000  # lines between two checks that a table fits into memory
LISTED = 200  # letters of a list of columns in an error
REFERENCE, TEXT = 8, 60  # bytes of a cell of a list, and of a text in it


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
    keys: Mapping[str, str] = field(default_factory=dict)
    """The config key that names a column, for errors."""

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
        if name not in self.columns:
            file, known = self.sources[-1].file, [*self.columns]
            raise ConfigError(
                f"{key}: found {show(name)}, allowed: one of {show(known, LISTED)} in {file}{nearest(name, known)}"
            )

    def numbers(self, name: str, or_missing: bool = False, advice: str = "") -> Array:
        """Return a column of numbers: float64 [n], with NaN for missing ones if `or_missing`.

        `advice` is the end of an error message.

        Raises:
            ConfigError: a value is not a finite number, or is too large for float32. The message has its line.
        """
        values: Any = self.columns[name]
        try:
            numbers = np.array(values, np.float64)  # much faster than one by one
        except (ValueError, TypeError):
            numbers = np.array([np.nan])
        if len(numbers) != len(values) or not np.isfinite(numbers).all():
            found = [read_number(value) for value in values]
            for row, number in enumerate(found):
                is_missing = _is_missing(values[row])
                if number is None and is_missing and not or_missing:
                    raise ConfigError(f"{self.where(name, row)}: found nothing, allowed: a number{advice}")
                if number is None and not is_missing:
                    raise ConfigError(f"{self.where(name, row)}: found {show(values[row])}, allowed: a number{advice}")
            numbers = np.array([np.nan if number is None else number for number in found])
        as_float32(numbers, lambda index: self.where(name, index[0]))
        return numbers

    def texts(self, name: str) -> list[str]:
        """Return a column as texts. A missing value is the empty text; a whole number has no decimal point."""
        return [_as_text(value) for value in self.columns[name]]


def join(tables: Sequence[Table]) -> Table:
    """Return the rows of several tables, one after the other, with the columns of the first.

    Raises:
        ConfigError: a later table lacks a column of the first.
    """
    first = tables[0]
    for table in tables[1:]:
        for name in first.columns:
            table.require(table.sources[0].key, name)
    columns = {name: [value for table in tables for value in table.columns[name]] for name in first.columns}
    return Table([source for table in tables for source in table.sources], columns)


def read_csv(key: str, file: Path, delimiter: str) -> Table:
    """Return the table in a CSV file with a header (RFC 4180; UTF-8, gzipped if its name ends in .gz).

    Raises:
        MissingData: there is no such file.
        ConfigError: the file cannot be read, its header names a column twice, or a line has more or fewer fields than
            the header.
    """
    require_file(key, file)
    lines: list[int] = []
    seen: dict[str, str] = {}  # equal texts are stored once
    try:
        with io.TextIOWrapper(
            gzip.open(file) if file.suffix == ".gz" else file.open("rb"), encoding="utf-8-sig", newline=""
        ) as stream:
            records = _records(f"{key}: {file}", csv.reader(stream, delimiter=delimiter, strict=True))
            names = [name.strip() for name in next(records, (1, []))[1]]
            allowed = f"a name for each column, separated by {show(delimiter)} (dataset.delimiter)"
            _check_header(f"{key}: {file}, line 1", names, allowed)
            if len(names) == 1:  # most likely the whole line
                raise ConfigError(f"{key}: {file}, line 1: found one column, {show(names[0])}, allowed: {allowed}")
            columns: dict[str, list[str]] = {name: [] for name in names}
            for line, fields in records:
                if len(fields) != len(names):
                    allowed = f"{len(names)}, as the header has ({show(names)}; dataset.delimiter is between fields)"
                    raise ConfigError(f"{key}: {file}, line {line}: found {len(fields)} fields, allowed: {allowed}")
                for name, field in zip(names, fields, strict=True):
                    text = field.strip()
                    columns[name].append(seen.setdefault(text, text))
                lines.append(line)
                if len(lines) % OFTEN == 0:
                    require_memory(REFERENCE * len(names) * len(lines) + TEXT * len(seen), key, file)
    except DAMAGE as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ConfigError(
            f"{key}: {file} cannot be read ({reason}), allowed: CSV in UTF-8, in .gz if gzipped"
        ) from error
    _check_length(key, file, len(lines))
    return Table([TableFile(key, file, lines)], columns)


def _records(where: str, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a record's first line, from 1, and its fields. Empty lines are left out."""
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            allowed = "fields that are in double quotes if they have a quote, a delimiter or a line break"
            raise ConfigError(f"{where}, line {line}: found a broken line ({error}), allowed: {allowed}") from error
        if fields is None:
            return
        if fields:
            yield line, fields


def read_parquet(key: str, file: Path) -> Table:
    """Return the table in a Parquet file (the extra parquet). Dates become texts in ISO 8601, and true becomes 1.

    Raises:
        MissingData: there is no such file.
        ConfigError: pyarrow is not installed, the file cannot be read, or two columns have one name.
    """
    parquet = import_extra("pyarrow.parquet", "parquet")
    require_file(key, file)
    try:
        contents = parquet.ParquetFile(file)
        cells = contents.metadata.num_rows * contents.metadata.num_columns
        require_memory((REFERENCE + TEXT) * cells, key, file)
        table = contents.read()
        names = [*map(str, table.column_names)]
        _check_header(f"{key}: {file}", names, "a different name for each column")
        columns = [[_plain(value) for value in column.to_pylist()] for column in table.columns]
    except ConfigError:
        raise
    except Exception as error:  # pyarrow has its own errors for damaged files
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ConfigError(f"{key}: {file} cannot be read ({reason}), allowed: a Parquet file") from error
    _check_length(key, file, table.num_rows)
    rows = range(1, table.num_rows + 1)
    return Table([TableFile(key, file, rows, counted="row")], dict(zip(names, columns, strict=True)))


def _plain(value: Any) -> object:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


def _is_missing(value: object) -> bool:
    return value is None or value == "" or value != value


def _as_text(value: object) -> str:
    if _is_missing(value):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _check_header(where: str, names: Sequence[str], allowed: str) -> None:
    odd = next((name for place, name in enumerate(names) if not name or name in names[:place]), None)
    if odd is not None or not names:
        found = (
            f"the column {show(odd)} twice" if odd else "a column without a name" if names else "no names of columns"
        )
        raise ConfigError(f"{where}: found {found}, allowed: {allowed}")


def _check_length(key: str, file: Path, rows: int) -> None:
    if not rows:
        raise ConfigError(f"{key}: {file} holds no rows, allowed: at least one below the names of the columns")
