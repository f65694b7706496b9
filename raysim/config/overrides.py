"""KEY=VALUE: values from the command line or from Python that replace those of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from raysim.config.document import Document, Elsewhere, Given, Keys, dotted, plain
from raysim.config.messages import show
from raysim.config.reading import parse_value, shorten
from raysim.system.errors import ConfigError


def apply(document: Document, overrides: Sequence[str] | Mapping[str, object]) -> None:
    """Put each override into the document's values, in order; a value replaces a whole block."""
    for given, value in parse(overrides):
        put(document, given.keys, value, given)


def parse(overrides: Sequence[str] | Mapping[str, object]) -> Iterator[tuple[Given, object]]:
    """Yield each override's key and value, in order."""
    if isinstance(overrides, str):
        raise ConfigError(f"{shorten(overrides)}: overrides are a list of KEY=VALUE or a dict, not one string")
    pairs = overrides.items() if isinstance(overrides, Mapping) else [(text, None) for text in overrides]
    for order, (key, value) in enumerate(pairs):
        if isinstance(overrides, Mapping):
            keys, value = split(str(key), str(key)), plain(value)
            yield Given(keys, f"{key}={show(value)}", order), value
        else:
            given = _given(str(key), order)
            yield given, parse_value(str(key).partition("=")[2], given)


def split(key: str, shown: str) -> Keys:
    """Return the parts of a dotted key; a part such as package.module:name keeps its dots."""
    parts = key.split(".")
    own = next((index for index, part in enumerate(parts) if ":" in part), 0)
    if own > 1:
        parts[1 : own + 1] = [".".join(parts[1 : own + 1])]
    if not all(part and part == part.strip() for part in parts):
        raise ConfigError(f"{shorten(shown)}: found the key '{shorten(key)}', allowed: a dotted key such as seed=1")
    return tuple(parts)


def put(document: Document, keys: Keys, value: object, origin: Given | Elsewhere) -> None:
    """Put a value that was given elsewhere into the document's values; it replaces a whole block."""
    block = document.values
    for length, key in enumerate(keys[:-1], start=1):
        above = keys[:length]
        found = block.get(str(key))
        if found is None:
            found = block[str(key)] = {}
            document.origins[above] = origin
        if not isinstance(found, dict):
            what = "a list" if isinstance(found, list) else show(found)
            raise ConfigError(
                f"{origin}: {dotted(above)} is {what}, which has no keys; replace it whole: {dotted(above)}=VALUE"
            )
        block = found
    document.forget(keys)
    document.origins[keys] = origin
    block[str(keys[-1])] = value


def _given(text: str, order: int) -> Given:
    key, equals, _ = text.partition("=")
    if not equals:
        raise ConfigError(f"{shorten(text)}: found no '=', allowed: KEY=VALUE, such as seed=1")
    return Given(split(key, text), text, order)
