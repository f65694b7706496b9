"""Tables in Parquet files: their columns, read in small parts, so that a small file cannot fill the memory."""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from raysim.config.error_text import show
from raysim.data.paths import require_file
from raysim.data.table_files import CELL, INDEX, TEXT, Roles, Table, TableFile, choose_columns, require_rows
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError, first_line
from raysim.system.importing import import_extra

AT_ONCE = 1024  # rows that are read at once
DICTIONARIES = {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}
"""The encodings of texts that pyarrow reads as a dictionary."""
ALLOWED = "numbers, truth values, texts, dates and times"


def read_parquet(key: str, file: Path, roles: Roles) -> Table:
    """Return the table in a Parquet file (the extra parquet). Dates become texts in ISO 8601, and true becomes 1.

    Texts stay in dictionaries until they are stored, each once: many rows may share a long one.

    Raises:
        MissingData: there is no such file.
        ConfigError: pyarrow is not installed, the file cannot be read, two columns have one name, or a column holds
            lists, structs, bytes or durations. Or the table does not fit into memory.
    """
    arrow, parquet = import_extra("pyarrow", "parquet"), import_extra("pyarrow.parquet", "parquet")
    require_file(key, file)
    try:
        with parquet.ParquetFile(file) as contents:
            schema, rows = contents.schema_arrow, contents.metadata.num_rows
            names, kinds = [*map(str, schema.names)], schema.types
            index = _index_columns(schema.metadata or {}) & {*names} | {name for name in names if INDEX.fullmatch(name)}
            kept = choose_columns(f"{key}: {file}", names, index, roles, "a different name for each column")
            for name, place in kept.items():
                if not _is_plain(arrow.types, kinds[place]):
                    problem = f"column {show(name)}: found values of the type {kinds[place]}"
                    raise ConfigError(f"{key}: {file}, {problem}, allowed: {ALLOWED}; name it in dataset.ignore")
            require_rows(key, file, rows)
            require_memory(CELL * (len(kept) + 1) * rows, key, file)
            others = _columns_of_other_encodings(contents.metadata)
        texts = [name for name, place in kept.items() if _is_text(arrow.types, kinds[place]) and name not in others]
        columns: dict[str, list[object]] = {name: [] for name in kept}
        with parquet.ParquetFile(file, read_dictionary=texts) as contents:
            stored: dict[object, object] = {}
            size = 0
            for batch in contents.iter_batches(AT_ONCE, columns=[*kept]):
                for name in kept:
                    values = _values(arrow.types, batch.column(name))
                    written = {value for value in values if isinstance(value, str)}
                    for value in written:
                        size += 0 if value in stored else TEXT + len(value)
                        stored.setdefault(value, value)
                    columns[name] += [stored.get(value, value) for value in values] if written else values
                require_memory(CELL * (len(kept) + 1) * rows + size, key, file)
    except ConfigError:
        raise
    except Exception as error:  # pyarrow has its own errors for damaged files
        reason = first_line(error)
        raise ConfigError(f"{key}: {file} cannot be read ({reason}), allowed: a Parquet file") from error
    lines = range(1, rows + 1)
    return Table([TableFile(key, file, lines, counted="row")], columns, index - {*roles.named}, roles.ignored_of(names))


def _index_columns(metadata: Mapping[bytes, bytes]) -> set[str]:
    """Return the columns that pandas wrote for its index, as the file's metadata say."""
    try:
        written = json.loads(metadata[b"pandas"])["index_columns"]
        return {name for name in written if isinstance(name, str)}  # a dict describes a range, which is no column
    except (KeyError, TypeError, ValueError, RecursionError):
        return set()


def _columns_of_other_encodings(metadata: Any) -> set[str]:
    """Return the columns that a file does not encode as DICTIONARIES says."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = (group.column(place) for group in groups for place in range(group.num_columns))
    return {chunk.path_in_schema for chunk in chunks if not {*chunk.encodings} <= DICTIONARIES}


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_plain(types: Any, kind: Any) -> bool:
    """Return whether the values of a type are numbers, truth values, texts, dates, times or missing."""
    if types.is_dictionary(kind):
        return _is_plain(types, kind.value_type)
    checks: list[Callable[[Any], bool]] = [
        types.is_null,
        types.is_boolean,
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        types.is_date,
        types.is_time,
        types.is_timestamp,
    ]
    return _is_text(types, kind) or any(check(kind) for check in checks)


def _values(types: Any, column: Any) -> list[object]:
    """Return the values of a part of a column. Of a dictionary, only the entries that are used are converted."""
    kind = column.type
    if types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind):
        numbers: list[object] = column.to_pylist()
        return numbers
    if not types.is_dictionary(kind):
        return [_plain(value) for value in column.to_pylist()]
    used = column.indices.unique()
    entries = dict(zip(used.to_pylist(), map(_plain, column.dictionary.take(used).to_pylist()), strict=True))
    return [entries[place] for place in column.indices.to_pylist()]


def _plain(value: Any) -> object:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Decimal):
        return float(value)
    if hasattr(value, "isoformat"):
        return value.isoformat() if value == value else None  # pandas' NaT is missing
    return value.item() if hasattr(value, "item") else value  # a half-precision number
