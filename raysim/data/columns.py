"""Columns: what is known of each sample and is no input, such as a time stamp or a site."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from raysim.config.error_text import show
from raysim.data.dataset import Array, Dataset, Split
from raysim.system.errors import ConfigError

NUMBERS = "iuf"
"""The kinds of dtypes that are numbers."""


def as_column(values: Sequence[object], where: Callable[[int], str]) -> Array:
    """Return a column as numbers (float64), moments (datetime64[us]) or texts (str): [n].

    The first value decides: a number, a date in ISO 8601, or another text. Moments with a time zone become UTC.

    Args:
        values: what a file holds, one per sample.
        where: returns the beginning of an error message about the value at an index.

    Raises:
        ConfigError: a value is missing or of another kind than the first one.
    """
    kind, read = next(((kind, read) for kind, read in KINDS.items() if read(values[0]) is not None), ("a text", _text))
    found = [read(value) for value in values]
    wrong = next((index for index, value in enumerate(found) if value is None), None)
    if wrong is not None:
        alike = ", as the first value is" if wrong else ""
        raise ConfigError(f"{where(wrong)}: found {_describe(values[wrong])}, allowed: {kind}{alike}")
    return np.array(found)


def _describe(value: object) -> str:
    return "nothing" if value in (None, "") else show(value)


def read_number(value: object) -> float | None:
    """Return a number or the number that a text is, or None if it is none or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_moment(value: object) -> np.datetime64 | None:
    """Return the moment (UTC, in microseconds) that a text in ISO 8601 is, or None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        moment = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return np.datetime64(moment, "us")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


KINDS: Mapping[str, Callable[[object], object]] = {
    "a number": read_number,
    "a date in ISO 8601, such as 2024-05-31 or 2024-05-31T14:00": read_moment,
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
