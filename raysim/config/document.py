"""Plain config values, the place where each was given, and the mistakes in them."""

import numbers
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pydantic import BaseModel

from raysim.config.error_text import shorten, show
from raysim.system.errors import ConfigError

REQUIRED = "this key is required and missing"

Keys = tuple[str | int, ...]
Overrides = Sequence[str | Mapping[str, object]] | Mapping[str, object]
"""KEY=VALUE strings, a mapping from dotted keys to values, or a list of both."""

DEEPEST = 50  # blocks within blocks; far more than the schema has
PLAIN = frozenset([str, bool, int, float, type(None)])  # subclasses are no plain values


@dataclass(frozen=True)
class Given:
    """The place of a value that was given as KEY=VALUE; `order` counts these."""

    keys: Keys
    text: str
    order: int

    def __str__(self) -> str:
        return shorten(self.text)


@dataclass(frozen=True)
class Line:
    """A line of a file, from 1, in which a value was given."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


Origin = Given | Line


@dataclass(frozen=True)
class Mistake:
    """A mistake in a key, as a text. `missing`: the key is absent."""

    keys: Keys
    words: str
    missing: bool = False

    def below(self, keys: Keys) -> "Mistake":
        """Return the mistake with the keys of the block around it in front."""
        return Mistake((*keys, *self.keys), self.words, self.missing)


@dataclass
class Document:
    """The values of one config, their file, and the place of each key."""

    file: str | None
    values: dict[str, object]
    origins: dict[Keys, Origin] = field(default_factory=dict)

    def origin(self, keys: Keys, missing: bool = False) -> Origin | None:
        """Return the place of a key, or of the nearest block around it. `missing`: the key is absent."""
        around = keys[:-1] if missing else keys
        above = (around[:length] for length in range(len(around), -1, -1))
        found = next((self.origins[place] for place in above if place in self.origins), None)
        # a block that exists only because a key inside it was given is not where a missing key belongs
        return None if missing and isinstance(found, Given) and len(found.keys) > len(around) else found

    def place(self, keys: Keys, missing: bool = False) -> str:
        """Return the place of a key for messages: FILE:LINE and the key, or KEY=VALUE."""
        origin = self.origin(keys, missing)
        says_the_key = isinstance(origin, Given) and origin.keys == keys
        parts = (origin or self.file, "" if says_the_key else dotted(keys))
        return ": ".join(str(part) for part in parts if part)

    def error(self, keys: Keys, words: str, missing: bool = False) -> ConfigError:
        """Return an error about a key, with its place."""
        return ConfigError(words, self.place(keys, missing))

    def put(self, keys: Keys, value: object, origin: Origin) -> None:
        """Set a value that was given at `origin`. It replaces a whole block."""
        block = self.values
        for length, key in enumerate(keys[:-1], start=1):
            above = keys[:length]
            found = block.get(str(key))
            if found is None:
                found = block[str(key)] = {}
                self.origins[above] = origin
            if not isinstance(found, dict):
                what = "a list" if isinstance(found, list) else show(found)
                words = f"{dotted(above)} is {what}, which has no keys; replace it whole: {dotted(above)}=VALUE"
                raise ConfigError(words, str(origin))
            block = found
        for known in [known for known in self.origins if known[: len(keys)] == keys]:
            del self.origins[known]
        self.origins[keys] = origin
        block[str(keys[-1])] = value


def dotted(keys: Keys) -> str:
    """Return keys as users write them: training.optimizer.lr."""
    return ".".join(str(key) for key in keys)


def to_plain(value: object, keys: Keys = ()) -> object:
    """Return a Python value in the types of YAML: dicts, lists, strings, numbers, booleans and None."""
    if len(keys) > DEEPEST:
        raise ConfigError(f"{dotted(keys[:3])}: found blocks nested more than {DEEPEST} deep")
    if type(value) in PLAIN:
        return value
    if isinstance(value, BaseModel):
        return to_plain(value.model_dump(), keys)
    if isinstance(value, Enum):
        return to_plain(value.value, keys)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                words = f"found the key {key!r}, allowed: keys that are strings"
                raise ConfigError(f"{dotted(keys) or 'the config'}: {words}")
        return {str(key): to_plain(item, (*keys, str(key))) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item, (*keys, index)) for index, item in enumerate(value)]
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
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from walk(item, (*keys, key))


def first_mistake(mistakes: Sequence[Mistake], document: Document) -> ConfigError:
    """Return the first mistake in the file as a one-line error."""
    first = min(mistakes, key=lambda mistake: _position(mistake, document))
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return document.error(first.keys, first.words + more, first.missing)


def _position(mistake: Mistake, document: Document) -> tuple[int, int]:
    """Order by line, then by KEY=VALUE, then what is missing: a misspelt key explains one that is missing."""
    if mistake.missing:
        return 2, 0
    origin = document.origin(mistake.keys)
    if isinstance(origin, Given):
        return 1, origin.order
    return 0, origin.number if origin else 0
