"""Plain config values, together with where each of them came from."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from pydantic import BaseModel

from raysim.system.errors import ConfigError

Keys = tuple[str | int, ...]

DEEPEST = 50  # blocks within blocks; far more than the schema has


LONGEST_SHOWN = 100  # characters of a KEY=VALUE in a message


@dataclass(frozen=True)
class Given:
    """A value that was given as KEY=VALUE instead of in the file; `order` counts them."""

    keys: Keys
    text: str
    order: int

    def __str__(self) -> str:
        return self.text if len(self.text) <= LONGEST_SHOWN else self.text[: LONGEST_SHOWN - 3] + "..."


@dataclass(frozen=True)
class Elsewhere:
    """A value that stands in a line of another file than the document's own."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


Origin = int | Given | Elsewhere


@dataclass
class Document:
    """The values of one config, the file they were read from, and where each dotted key was given."""

    file: str | None
    values: dict[str, object]
    origins: dict[Keys, Origin] = field(default_factory=dict)

    def origin(self, keys: Keys) -> Origin | None:
        """Return where a key was given, or the nearest block around it that has an origin."""
        for length in range(len(keys), -1, -1):
            if keys[:length] in self.origins:
                return self.origins[keys[:length]]
        return None

    def forget(self, keys: Keys) -> None:
        """Drop the origins of a key and of all keys below it: its value is about to be replaced."""
        for known in [known for known in self.origins if known[: len(keys)] == keys]:
            del self.origins[known]


def dotted(keys: Keys) -> str:
    """Return keys as users write them: training.optimizer.lr."""
    return ".".join(str(key) for key in keys)


def plain(value: object, keys: Keys = ()) -> object:
    """Return a Python value as what YAML could have said: dicts, lists, strings, numbers, booleans and None."""
    if len(keys) > DEEPEST:
        raise ConfigError(f"{dotted(keys[:3])}: found blocks nested more than {DEEPEST} deep")
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, Mapping):
        return {_string_key(key, keys): plain(item, (*keys, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, (*keys, index)) for index, item in enumerate(value)]
    return _plain_scalar(value)


def _string_key(key: object, keys: Keys) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"{dotted(keys) or 'the config'}: found the key {key!r}, allowed: keys that are strings")
    return str(key)


def _plain_scalar(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | os.PathLike):
        return str(value)
    # numpy's numbers are registered with these, so that a config made from them needs no .item()
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return value


def walk(value: object, keys: Keys = ()) -> Iterator[tuple[Keys, object]]:
    """Yield every value below a plain value with its keys, in order."""
    yield keys, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, (*keys, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from walk(item, (*keys, index))
