"""KEY=VALUE: values from the command line or from Python that replace those of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from raysim.config.document import Document, Given, Keys, to_plain
from raysim.config.error_text import shorten, show
from raysim.config.yaml_reading import parse_value
from raysim.system.errors import ConfigError


def apply_overrides(document: Document, overrides: Sequence[str] | Mapping[str, object]) -> None:
    """Put each override into the document's values, in order; a value replaces a whole block."""
    for given, value in parse_overrides(overrides):
        document.put(given.keys, value, given)


def parse_overrides(overrides: Sequence[str] | Mapping[str, object]) -> Iterator[tuple[Given, object]]:
    """Yield each override's key and value, in order."""
    if isinstance(overrides, str):
        raise ConfigError(f"{shorten(overrides)}: overrides are a list of KEY=VALUE or a dict, not one string")
    if isinstance(overrides, Mapping):
        for order, (key, found) in enumerate(overrides.items()):
            keys, value = split_key(str(key), str(key)), to_plain(found)
            yield Given(keys, f"{key}={show(value)}", order), value
        return
    for order, text in enumerate(map(str, overrides)):
        key, equals, value_text = text.partition("=")
        if not equals:
            raise ConfigError(f"{shorten(text)}: found no '=', allowed: KEY=VALUE, such as seed=1")
        given = Given(split_key(key, text), text, order)
        yield given, parse_value(value_text, given)


def split_key(key: str, shown: str) -> Keys:
    """Return the parts of a dotted key; a part such as package.module:name keeps its dots."""
    parts = key.split(".")
    own = next((index for index, part in enumerate(parts) if ":" in part), 0)
    if own > 1:
        parts[1 : own + 1] = [".".join(parts[1 : own + 1])]
    if not all(part and part == part.strip() for part in parts):
        raise ConfigError(f"{shorten(shown)}: found the key '{shorten(key)}', allowed: a dotted key such as seed=1")
    return tuple(parts)
