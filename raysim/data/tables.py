"""Tables as datasets: numbers that are standardized, categories as ids, a target, and columns that are no inputs."""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt, MaxLen, MinLen, doc

from raysim.config.block import Allowed
from raysim.config.error_text import shorten, show
from raysim.config.signature import takes_keys_of
from raysim.data.class_order import describe_classes, in_class_order
from raysim.data.columns import as_column, as_moments, read_number, read_time_as, rows_by_value
from raysim.data.dataset import Array, Dataset, Split, as_float32, draw_for_testing
from raysim.data.parquet_files import read_parquet
from raysim.data.table_files import LISTED, Roles, Table, join, read_csv
from raysim.system import seeding
from raysim.system.errors import ConfigError
from raysim.system.home import expand

UNKNOWN = 0
"""The id of a category's value that no training row has."""

ADVICE = "; dataset.missing=mean replaces missing ones; dataset.categories, .time and .ignore name other columns"
ADVICE_IF_REPLACED = "; dataset.missing_values names missing ones; dataset.categories, .time and .ignore other columns"
MISSING = ("NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")  # of the words that pandas knows
EXAMPLE = datetime(2024, 3, 30, 13, 5)  # a time that a format must be able to write and read
WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)

Names = tuple[str, ...]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TableKeys:
    """The keys of every table: its files, and what its columns are for."""

    path: Annotated[str, doc("the file of all rows or those to train on; relative, it starts at dataset.root")]
    target: Annotated[str, doc("the column to predict")]
    test: Annotated[str | None, doc("the file of the rows to test on; null takes them from path")] = None
    target_kind: Annotated[
        Literal["label", "number"],
        doc("whether the target is a label (a name or number of a class) or a number to regress"),
    ] = "label"
    client: Annotated[str | None, doc("the column of client ids, for partition=natural; it is no input")] = None
    time: Annotated[
        str | None, doc("a column of numbers or dates in ISO 8601, for scenario.kind=by_column; it is no input")
    ] = None
    time_format: Annotated[
        str | None,
        doc(
            "the format of that column's dates, as Python's strptime takes it: %d.%m.%Y is 30.03.2024; null is ISO 8601"
        ),
    ] = None
    columns: Annotated[Names, doc("further columns for scenario.kind=by_column that are no inputs")] = ()
    categories: Annotated[
        Names, doc("the input columns that are categories; the model learns a vector for each value")
    ] = ()
    ignore: Annotated[Names, doc("the columns to leave out; '' is a column without a name")] = ()
    standardize: Annotated[
        Literal["federation", "client", "none"],
        doc(
            "whose training rows give the mean and standard deviation of each number: all, each client id's own, or "
            "none"
        ),
    ] = "federation"
    missing: Annotated[
        Literal["refuse", "mean"], doc("whether a missing number is refused or becomes the mean of the training rows")
    ] = "refuse"
    missing_values: Annotated[
        Names, doc("the words that stand for a missing value in any column; an empty value is always missing")
    ] = MISSING
    test_fraction: Annotated[float, Gt(0), Lt(1), doc("the part of each class for testing, without a test file")] = 0.2
    seed: Annotated[int, Ge(0), doc("the seed of that part, independent of the run's seed")] = 0

    def by_column(self) -> list[tuple[str, str]]:
        """Return the columns that a key names, as pairs of the key and the column."""
        single = [("target", self.target), ("client", self.client), ("time", self.time)]
        listed = [(key, name) for key in ("columns", "categories", "ignore") for name in getattr(self, key)]
        return [(key, name) for key, name in [*single, *listed] if name is not None]

    def read(self, root: Path, read: Callable[[str, Path, Roles], Table]) -> Dataset:
        """Return the dataset of the files below `root`, each read by `read` with the config key that names it.

        Raises:
            MissingData: a file is missing.
            ConfigError: see `make_table`, and `read`.
        """
        if self.time_format is not None:
            _check_format(self.time_format, self.time)
        named = [("path", self.path)] if self.test is None else [("path", self.path), ("test", self.test)]
        roles = Roles({name for _, name in self.by_column()}, self.ignore)
        return make_table(
            [read(f"dataset.{key}", root / expand(f"dataset.{key}", name), roles) for key, name in named], self
        )


@takes_keys_of(TableKeys, before="test_fraction")
def csv(
    root: Path,
    download: bool,
    *,
    delimiter: Annotated[
        str,
        MinLen(1),
        MaxLen(1),
        Allowed('one character, such as ";", or "\\t" in double quotes for a tab'),
        doc("the character between two fields"),
    ] = ",",
    **keys: Any,
) -> Dataset:
    """A table in a CSV file with a header: numbers, categories, and a label or number to predict; see docs/tables.md.

    The inputs are the columns without another role: float32 [N, D]. First come the numbers, then the ids of the
    `categories`, both in the order of the header.

    Raises:
        MissingData: a file is missing.
        ConfigError: see `read_csv` and `make_table`.
    """
    return TableKeys(**keys).read(root, partial(read_csv, delimiter=delimiter))


@takes_keys_of(TableKeys)
def parquet(root: Path, download: bool, **keys: Any) -> Dataset:
    """A table in a Parquet file, with the keys of csv (the extra parquet).

    Raises:
        MissingData: a file is missing.
        ConfigError: see `read_parquet` and `make_table`.
    """
    return TableKeys(**keys).read(root, read_parquet)


def make_table(tables: Sequence[Table], keys: TableKeys) -> Dataset:
    """Return the dataset of a table, or of a table to train on and one to test on.

    Raises:
        ConfigError: a column is missing or has two roles, or a value does not suit its role; the message has the line.
            Also if a class has one row only, or is in the test rows only.
    """
    named = _check_roles(table := join(tables), keys)
    words = frozenset(keys.missing_values)
    missing_numbers = frozenset(number for word in words if (number := read_number(word)) is not None)
    table = replace(table, keys=named, missing=words, missing_numbers=missing_numbers)
    numbers = [name for name in table.columns if name not in named]
    categories = [name for name in table.columns if name in keys.categories]
    if not numbers and not categories:
        raise ConfigError(
            f"dataset.path: {table.sources[0].file} has no column that is an input, allowed: at least one; name "
            "fewer columns in dataset.ignore and dataset.columns"
        )
    for name, allowed in _must_be_there(keys):
        table.require_values(name, allowed)
    labels = table.texts(keys.target).tolist() if keys.target_kind == "label" else None
    train, test = _split(table, labels, keys.target, keys.test_fraction, keys.seed)
    y, names = _number_labels(table, labels, keys.target, train) if labels else (_targets(table, keys.target), None)
    clients = None if keys.client is None else table.texts(keys.client)
    replaces = keys.missing == "mean"
    raw = {name: table.numbers(name, replaces, ADVICE_IF_REPLACED if replaces else ADVICE) for name in numbers}
    groups = None
    if keys.standardize == "client" and clients is not None:
        groups = [rows for _, rows in rows_by_value(clients)]
    inputs = [_scale(raw[name], train, groups, keys.standardize != "none", name) for name in numbers]
    texts = {name: table.texts(name) for name in categories}
    ids = {name: _number_categories(values, train) for name, values in texts.items()}
    values = np.stack([*inputs, *(column for column, _ in ids.values())], 1)
    x = as_float32(values, lambda index: f"{table.where(numbers[index[1]], index[0])}, standardized")
    columns = {name: values for name, values in raw.items() if np.isfinite(values).all()} | texts
    columns |= {name: _column(table, name) for name in keys.columns}
    if keys.time is not None:
        columns[keys.time] = _times(table, keys.time, keys.time_format)
    if keys.client is not None and clients is not None:
        columns[keys.client] = clients
    whole, sizes = Split(x, y, clients, columns), tuple(size for _, size in ids.values())
    classes = 1 if labels is None else int(y.max()) + 1
    doubts = [_doubt_unknown(table, name, column[test], texts[name][test]) for name, (column, _) in ids.items()]
    return Dataset(
        whole.take(train),
        whole.take(test),
        classes,
        names,
        categories=sizes,
        notes=(*_describe_roles(table, keys, numbers, dict(zip(categories, sizes, strict=True)), labels, train),),
        doubts=tuple(filter(None, doubts)),
    )


def _must_be_there(keys: TableKeys) -> list[tuple[str, str]]:
    """Return the columns in which no value may be missing, and the end of the error message if one is."""
    instead = "; remove rows without one, or set dataset.missing_values if this is none of the missing values"
    label = [(keys.target, f"a label{instead}")] if keys.target_kind == "label" else []
    client = [] if keys.client is None else [(keys.client, f"a client id{instead}")]
    time = [] if keys.time is None else [(keys.time, f"a number or a date{instead}")]
    return [*label, *client, *time, *((name, f"a value{instead}") for name in keys.columns)]


def _describe_roles(
    table: Table,
    keys: TableKeys,
    numbers: Sequence[str],
    categories: Mapping[str, int],
    labels: Sequence[str] | None,
    train: Rows,
) -> Iterator[str]:
    """Yield what each column is for, and which values are missing, a phrase each."""
    roles = [_count(numbers, "number", "numbers")] if numbers else []
    if categories:
        sizes = [f"{name} ({size - 1:,} value{'s' * (size != 2)})" for name, size in categories.items()]
        roles.append(_count(sizes, "category", "categories"))
    kind = "a number" if labels is None else describe_classes(in_class_order(labels[row] for row in train))
    roles.append(f"target: {_name(keys.target)} ({kind})")
    others = (("client", keys.client), ("time", keys.time))
    roles += [f"{role}: {_name(name)}" for role, name in others if name is not None]
    yield "; ".join([*roles, f"columns: {_list(keys.columns)}"] if keys.columns else roles)
    if table.ignored:
        yield f"left out by dataset.ignore: {_list(table.ignored)}"
    if table.index:
        yield f"left out as pandas' index: {_list(sorted(table.index))}"
    if table.unused:
        yield f"left out of dataset.test: {_list(sorted(table.unused))}"
    missing = {name: count for name in table.columns if (count := table.count_missing(name))}
    if missing:
        counts = [f"{count:,} in {_name(name)}" for name, count in missing.items()]
        yield f"missing values: {shorten(', '.join(counts), LISTED)}"


def _count(names: Sequence[str], one: str, several: str) -> str:
    return f"{len(names):,} {one if len(names) == 1 else several}: {_list(names)}"


def _list(names: Iterable[str]) -> str:
    return shorten(", ".join(map(_name, names)), LISTED)


def _name(name: str) -> str:
    return name or "a column without a name"


def _doubt_unknown(table: Table, name: str, ids: Array, texts: Array) -> str | None:
    """Return a warning if most test rows have a value of a category that no training row has."""
    unknown = np.flatnonzero(ids == UNKNOWN)
    if 2 * len(unknown) <= len(ids):
        return None
    problem = f"{len(unknown):,} of {len(ids):,} test rows with a value that no training row has, such as"
    found = f"{problem} {show(str(texts[unknown[0]]))}, column {show(name)}"
    return f"dataset.categories: found {found}; the model knows none of them; spell the values alike in both parts"


def _check_roles(table: Table, keys: TableKeys) -> dict[str, str]:
    """Return the key that names each column. Refuse a missing column and a second role, except of client ids."""
    seen: dict[str, str] = {}
    for key, name in keys.by_column():
        if name not in seen:
            table.require(f"dataset.{key}", name)
        if name in seen and {key, seen[name]} != {"client", "categories"}:
            raise ConfigError(
                f"dataset.{key}: found {show(name)}, which is dataset.{seen[name]}, allowed: one of the two"
            )
        seen[name] = key
    if keys.standardize == "client" and keys.client is None:
        raise ConfigError("dataset.standardize: found client, allowed without dataset.client: federation or none")
    return {name: f"dataset.{key}" for name, key in seen.items()}


def _split(table: Table, labels: Sequence[str] | None, target: str, fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Return the training and the test rows: those of two files, or a part of each class, drawn."""
    if len(table.sources) > 1:
        count = len(table.sources[0].lines)
        return np.arange(count), np.arange(count, len(table))
    classes, of_row = (np.array([""]), np.zeros(len(table), int)) if labels is None else _distinct(np.array(labels))
    for_testing = np.zeros(len(table), bool)
    for number, label in enumerate(classes.tolist()):
        rows = np.flatnonzero(of_row == number)
        if len(rows) < 2:
            problem = f"the only row{f' of the class {show(label)}' * (labels is not None)}"
            advice = "set dataset.test, a file of rows to test on, or dataset.target_kind=number to predict numbers"
            raise ConfigError(
                f"{table.where(target, int(rows[0]))}: found {problem}, allowed: two, one for testing; {advice}"
            )
        drawn = draw_for_testing(len(rows), fraction, seeding.generator(seed, "table", ascii(label)))
        for_testing[rows[sorted(drawn)]] = True
    return np.flatnonzero(~for_testing), np.flatnonzero(for_testing)


def _distinct(texts: Array) -> tuple[Array, Rows]:
    """Return the different texts in the order of classes, and the place of each text."""
    found, of_row = np.unique(texts, return_inverse=True)
    places = {name: place for place, name in enumerate(in_class_order(found.tolist()))}
    return np.array([*places]), np.array([places[name] for name in found.tolist()])[of_row.reshape(-1)]


def _number_labels(
    table: Table, labels: Sequence[str], target: str, train: Rows
) -> tuple[npt.NDArray[np.int64], Names | None]:
    """Return each row's class, and the classes' names unless they are whole numbers.

    A class's number is its place among the sorted labels of the training rows.
    """
    found, _ = _distinct(np.array(labels)[train])
    numbers = {label: number for number, label in enumerate(found.tolist())}
    for row, label in enumerate(labels):
        if label not in numbers:
            raise ConfigError(f"{table.where(target, row)}: found {show(label)}, allowed: a label of the training rows")
    names = None if all(WHOLE.fullmatch(label) for label in numbers) else tuple(numbers)
    return np.array([numbers[label] for label in labels]), names


def _targets(table: Table, target: str) -> Array:
    return table.numbers(target, advice=", as dataset.target_kind=number says")[:, None].astype(np.float32)


def _column(table: Table, name: str) -> Array:
    return as_column(table.columns[name], lambda row: table.where(name, row))


def _times(table: Table, name: str, form: str | None) -> Array:
    """Return the column of times: numbers, or moments in ISO 8601 or in the format `form`."""
    values = table.columns[name]
    if form is None:
        column = _column(table, name)
        if column.dtype.kind == "U":
            advice = (
                "set dataset.time_format for dates such as 30.03.2024, or name a column of texts in dataset.columns"
            )
            found = f"{table.where(name, 0)}: found {show(values[0])}"
            raise ConfigError(f"{found}, allowed: a number or a date in ISO 8601; {advice}")
        return column
    times = []
    for row, value in enumerate(values):
        time = read_time_as(value, form)
        if time is None:
            allowed = f"a date of the form {show(form)}, as dataset.time_format says"
            raise ConfigError(f"{table.where(name, row)}: found {show(value)}, allowed: {allowed}")
        times.append(time)
    return as_moments(times, values, lambda row: table.where(name, row))


def _check_format(form: str, time: str | None) -> None:
    """Refuse a format that cannot read what it writes, that has no year, or that has no column."""
    if time is None:
        raise ConfigError(f"dataset.time_format: found {show(form)}, allowed without dataset.time: null")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # of a day without a year, since Python 3.13
            year = None if "%Z" in form else datetime.strptime(EXAMPLE.replace(tzinfo=UTC).strftime(form), form).year
    except (ValueError, LookupError, re.error, DeprecationWarning):
        year = None
    if year != EXAMPLE.year:
        allowed = "a format of Python's strptime with a year, such as '%d.%m.%Y' or '%m/%d/%Y %H:%M'; zones are %z"
        raise ConfigError(f"dataset.time_format: found {show(form)}, allowed: {allowed}")


def _scale(values: Array, train: Rows, groups: Sequence[Rows] | None, scales: bool, name: str) -> Array:
    """Return numbers minus the mean, divided by the standard deviation, of the training rows: float64 [n].

    With `groups`, the rows of each, they are those of the training rows of the same group, or of all if the group has
    none. Missing values become the mean, and a standard deviation of 0 becomes 1. Without `scales`, only missing values
    change.
    """
    is_known = np.zeros(len(values), bool)
    is_known[train] = np.isfinite(values[train])
    if not is_known.any():
        raise ConfigError(
            f"dataset.path: the column {show(name)} has no number in any training row; name it in dataset.ignore"
        )
    scaled = _scale_like(values, values[is_known], scales)
    for rows in groups or ():
        known = rows[is_known[rows]]
        if len(known):
            scaled[rows] = _scale_like(values[rows], values[known], scales)
    return scaled


def _scale_like(values: Array, known: Array, scales: bool) -> Array:
    constant = known.min() == known.max()  # of which rounding makes a small deviation
    mean, deviation = (known[0], 1.0) if constant else (known.mean(), known.std() or 1.0)
    filled: Array = np.where(np.isfinite(values), values, mean)
    return (filled - mean) / deviation if scales else filled


def _number_categories(texts: Array, train: Rows) -> tuple[Array, int]:
    """Return each row's id and the number of ids: from 1 in the order of the training rows' texts, or UNKNOWN."""
    found = np.unique(texts[train])
    place = np.minimum(np.searchsorted(found, texts), len(found) - 1)
    return np.where(found[place] == texts, place + 1, UNKNOWN), len(found) + 1
