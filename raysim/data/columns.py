"""Columns: what is known of each sample and is no input, such as a time stamp or a site."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from raysim.config.error_text import show
from raysim.data.dataset import Array, Dataset, Split
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError

NUMBERS = "iuf"
"""The kinds of dtypes that are numbers."""

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)  # float() also reads 1_000
MOMENT = re.compile(r"[-\d:.,+TWZ ]+", re.ASCII)
LETTER = 12  # bytes of a letter in an array of texts, of which sorting makes two copies


def as_column(values: Sequence[object], where: Callable[[int], str]) -> Array:
    """Return a column as numbers (float64), moments (datetime64[us]) or texts (str): [n].

    The first value that is not missing decides: a number, a date in ISO 8601, or another text. Moments with a time
    zone become UTC.

    Args:
        values: what a file holds, one per sample.
        where: returns the beginning of an error message about the value at an index.

    Raises:
        ConfigError: a value is missing or of another kind than the first one. Also if some moments have a time zone and
            others have none, or if the texts do not fit into memory.
    """
    first = next((index for index, value in enumerate(values) if value not in (None, "")), 0)
    kinds = ((kind, read) for kind, read in KINDS.items() if read(values[first]) is not None)
    kind, read = next(kinds, ("a number, a date in ISO 8601 or a text", _text))
    found = [read(value) for value in values]
    wrong = next((index for index, value in enumerate(found) if value is None), None)
    if wrong is not None:
        alike = ", as the first value is" if wrong > first else ""
        raise ConfigError(f"{where(wrong)}: found {_describe(values[wrong])}, allowed: {kind}{alike}")
    if read is read_time:
        return as_moments([time for time in found if isinstance(time, datetime)], values, where)
    return as_texts([str(text) for text in found], where) if read is _text else np.array(found)


def as_texts(texts: Sequence[str], where: Callable[[int], str]) -> Array:
    """Return texts as an array of str [n], in which every text takes as much memory as the longest one.

    Raises:
        ConfigError: they do not fit into memory, and the message names the longest one; or one ends with a NUL.
    """
    longest = max(range(len(texts)), key=lambda index: len(texts[index]), default=None)
    if longest is not None:
        letters = len(texts[longest])
        require_memory(LETTER * letters * len(texts), where(longest), f"{letters:,} letters for {len(texts):,} rows")
    cut = next((index for index, text in enumerate(texts) if text.endswith("\0")), None)
    if cut is not None:  # NumPy takes it for the end of the text
        allowed = "a text that does not end with the character 0"
        raise ConfigError(f"{where(cut)}: found {show(texts[cut])}, allowed: {allowed}")
    return np.array(texts)


def as_moments(times: Sequence[datetime], values: Sequence[object], where: Callable[[int], str]) -> Array:
    """Return times as moments, datetime64[us] [n]. Those with a time zone become UTC.

    `values` are the times as a file holds them, for errors.

    Raises:
        ConfigError: some have a time zone and others have none.
    """
    zoned = [time.tzinfo is not None for time in times]
    if len({*zoned}) > 1:
        with_zone, without = zoned.index(True), zoned.index(False)
        raise ConfigError(
            f"{where(without)}: found {show(values[without])} without a time zone, and {show(values[with_zone])} with "
            f"one ({where(with_zone)}), allowed: one of the two in a column"
        )
    return np.array([_to_moment(time) for time in times])


def rows_by_value(values: Array) -> Iterator[tuple[object, npt.NDArray[np.int64]]]:
    """Yield each different value, such as a client id, and the rows that have it, both ascending."""
    names, sizes = np.unique(values, return_counts=True)
    yield from zip(names.tolist(), np.split(np.argsort(values, kind="stable"), np.cumsum(sizes)[:-1]), strict=True)


def _describe(value: object) -> str:
    return "nothing" if value in (None, "") else show(value)


def read_number(value: object) -> float | None:
    """Return a number or the number that a text is, or None if it is none or not finite.

    A text has ASCII digits only, a point, and an exponent: what float() reads too, such as 1_000, is more likely an id.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not NUMBER.fullmatch(value.strip()):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_time(value: object) -> datetime | None:
    """Return the time that a text in ISO 8601 is, with its time zone if it has one, or None if it is none."""
    if not isinstance(value, str) or not MOMENT.fullmatch(text := value.strip()):
        return None
    try:
        return _checked(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def read_time_as(value: object, form: str) -> datetime | None:
    """Return the time that a text in a format of strptime is, or None if it is none."""
    if not isinstance(value, str) or not value.isascii():  # strptime also reads digits of other scripts
        return None
    try:
        return _checked(datetime.strptime(value.strip(), form))
    except (ValueError, OverflowError):
        return None


def read_moment(value: object) -> np.datetime64 | None:
    """Return the moment (UTC, in microseconds) that a text in ISO 8601 is, or None if it is none."""
    time = read_time(value)
    return None if time is None else _to_moment(time)


def _checked(time: datetime) -> datetime:
    """Return a time. Raises OverflowError if UTC has no such year."""
    _to_moment(time)
    return time


def _to_moment(time: datetime) -> np.datetime64:
    return np.datetime64(time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None), "us")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


KINDS: Mapping[str, Callable[[object], object]] = {
    "a number": read_number,
    "a date in ISO 8601, such as 2024-05-31 or 2024-05-31T14:00": read_time,
    "a text": _text,
}
"""What a column's values may be -> a function that returns the value, or None if it is something else."""


def check_columns(dataset: Dataset, name: str) -> None:
    """Check the columns of a dataset. `name` is its name in errors.

    Raises:
        ConfigError: the splits have other columns, or a column is not a finite number, moment or text per sample.
    """
    train, test = dataset.train.columns, dataset.test.columns
    if {*train} != {*test}:
        odd = sorted({*train} ^ {*test})[0]
        has, lacks = ("train", "test") if odd in train else ("test", "train")
        raise ConfigError(
            f"dataset {name}: the column {show(odd)} is in the {has} split and not in the {lacks} split; both must "
            "have the same columns"
        )
    for column in train:
        kinds = [
            _check_column(split, column, f"dataset {name}, {part} split: column {show(column)}")
            for part, split in (("train", dataset.train), ("test", dataset.test))
        ]
        if kinds[0] != kinds[1]:
            problem = f"found {kinds[0]} in training and {kinds[1]} in tests"
            raise ConfigError(f"dataset {name}: column {show(column)}: {problem}; both must be alike")


def _check_column(split: Split, column: str, where: str) -> str:
    """Return what a column holds."""
    values, samples = split.columns[column], len(split)
    if not isinstance(values, np.ndarray) or values.shape != (samples,) or values.dtype.kind not in f"{NUMBERS}MU":
        is_array = isinstance(values, np.ndarray)
        found = f"{values.dtype} of shape {values.shape}" if is_array else type(values).__name__
        raise ConfigError(f"{where}: found {found}; use numbers, datetime64 or strings of shape [{samples}]")
    if values.dtype.kind in "fM" and not np.isfinite(values).all():
        raise ConfigError(f"{where}: found NaN, NaT or infinite values; every value must be finite")
    return {"M": "dates", "U": "texts"}.get(values.dtype.kind, "numbers")
