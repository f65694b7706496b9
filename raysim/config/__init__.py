"""The config: YAML and KEY=VALUE in, one frozen and validated `Config` out, or a one-line `ConfigError`.

Every key is declared once, in the block that it belongs to: schema.py, experiment.py, scenarios.py, timing.py,
component_blocks.py.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pydantic import BaseModel, ValidationError

from raysim.config.block import blocks_in
from raysim.config.bundled import find_config
from raysim.config.component import ByName, Component
from raysim.config.component_keys import ComponentKeys, contradictions_in
from raysim.config.consistency import contradictions
from raysim.config.document import Document, Given, Keys, Mistake, Overrides, first_mistake, to_plain, walk
from raysim.config.error_text import shorten, show
from raysim.config.lookup import table
from raysim.config.mistakes import explain_errors
from raysim.config.reference import build_json_schema
from raysim.config.renamed import move_renamed
from raysim.config.schema import LARGEST_FLOAT32, Config
from raysim.config.written_by import naming_the_version
from raysim.config.yaml_text import parse_value, read_yaml, to_yaml
from raysim.system.errors import ConfigError

__all__ = ["Config", "ConfigError", "Draft", "build_json_schema", "dump", "load", "read_draft", "validate"]


@dataclass(frozen=True)
class Draft:
    """A validated config without imports of its components, as these take seconds. Their keys are not checked."""

    document: Document
    config: Config

    def complete(self) -> Config:
        """Import the components and return the config with their keys and defaults. Raises ConfigError."""
        components = ComponentKeys(Config, self.document.values)
        with naming_the_version(self.document.file):
            config = components.complete(self.config, self.document.values)
            if mistakes := components.mistakes or [*contradictions(config)]:
                raise first_mistake(mistakes, self.document)
        for keys, value in walk(to_plain(config)):
            if isinstance(value, float) and abs(value) > LARGEST_FLOAT32:  # torch refuses it in the middle of a step
                allowed = f"numbers up to {LARGEST_FLOAT32:.2g}, the largest in single precision"
                raise self.document.error(keys, f"found {show(value)}, allowed: {allowed}")
        return config


def load(source: str | Path | Mapping[str, object] | Config, overrides: Overrides = ()) -> Config:
    """Return the validated config.

    Args:
        source: the path of a YAML file, the name of a bundled config such as "quickstart", a mapping or a config.
        overrides: KEY=VALUE strings, a mapping from dotted keys to values, or a list of both.

    Raises:
        ConfigError: a key is missing, unknown or has a wrong value.
    """
    if isinstance(source, Config) and not overrides:
        return source
    return read_draft(source, overrides).complete()


def read_draft(source: str | Path | Mapping[str, object] | Config, overrides: Overrides = ()) -> Draft:
    """Return the draft of a config; the arguments are those of `load`. Raises ConfigError."""
    document = open_document(source)
    apply_overrides(document, overrides)
    with naming_the_version(document.file):
        return draft(document)


def validate(document: Document) -> Config:
    """Return the config of a document. Raises ConfigError."""
    return draft(document).complete()


def draft(document: Document) -> Draft:
    """Return the draft of a document's config. Raises ConfigError."""
    move_renamed(document)
    for keys, value in walk(document.values):
        if isinstance(value, float) and not math.isfinite(value):
            raise document.error(keys, f"found {show(value)}, allowed: a finite number")
    mistakes: list[Mistake]
    if {"base", "grid"} <= document.values.keys():
        words = f"found a sweep, allowed: a run's config; did you mean `raysim sweep {document.file or 'FILE'}`?"
        words += " With --list, it checks the runs and starts none"
        raise ConfigError(words, document.file or "")
    try:
        config = Config.model_validate(document.values)
        mistakes = [*contradictions_in(config)]
    except ValidationError as error:
        mistakes = explain_errors(Config, document.values, error)
    if mistakes:
        raise first_mistake(mistakes, document)
    return Draft(document, config)


def dump(config: Config) -> str:
    """Return the config as YAML in the order of the schema; `load` of it gives an equal config."""
    return to_yaml(config)


def open_document(source: str | Path | Mapping[str, object] | Config) -> Document:
    """Return the values of a YAML file, a bundled config, a mapping or a config, not validated yet."""
    if isinstance(source, str | Path):
        return read_yaml(find_config(source))
    values = to_plain(source)
    if not isinstance(values, dict):
        raise ConfigError(f"found {show(source)}, allowed: a path, a mapping or a Config")
    return Document(None, values)


def apply_overrides(document: Document, overrides: Overrides) -> None:
    """Apply the overrides to a document in order. A value replaces a whole block."""
    for given, value in parse_overrides(overrides):
        spell_out_names(Config, document.values)
        document.put(given.keys, value, given)


def spell_out_names(block: type[BaseModel], values: dict[str, object]) -> None:
    """Replace names by blocks, so that an override can set a key in them: model=mlp model.hidden=[8]."""
    for name, field in block.model_fields.items():
        if isinstance(values.get(name), str) and any(isinstance(item, ByName) for item in field.metadata):
            values[name] = {values[name]: {}}
        for below in blocks_in(field.annotation):
            given = values.get(name)
            if isinstance(given, str) and issubclass(below, Component):
                values[name] = below.spell_out(given)
            elif isinstance(given, dict):
                spell_out_names(below, given)


def parse_overrides(overrides: Overrides) -> Iterator[tuple[Given, object]]:
    """Yield each override's key and value, in order."""
    if isinstance(overrides, str):
        raise ConfigError(f"{shorten(overrides)}: overrides are a list of KEY=VALUE or a dict, not one string")
    several = [overrides] if isinstance(overrides, Mapping) else [*overrides]
    order = count()
    for place, one in enumerate(several):
        if isinstance(one, Mapping):
            for key, found in one.items():
                keys, value = split_key(str(key), str(key)), to_plain(found)
                yield Given(keys, f"{key}={show(value)}", next(order)), value
            continue
        text = str(one)
        key, equals, value_text = text.partition("=")
        if not equals:
            words = f"found no '=', allowed: KEY=VALUE, such as seed=1{_meant([*map(str, several)], place)}"
            raise ConfigError(words, shorten(text))
        given = Given(split_key(key, text), text, next(order))
        yield given, parse_value(value_text, given)


def _meant(texts: Sequence[str], place: int) -> str:
    """Return the suggestion for an override that is no KEY=VALUE: without spaces, with =, or with the key methods."""
    text, *after = texts[place:]
    if after and after[0].startswith("="):
        joined = f"{text}{after[0]}" + "".join(after[1:2] * (after[0] == "="))
        return f"; did you mean '{shorten(joined)}', without spaces?"
    colon = re.fullmatch(r"([a-z_]+(?:\.[a-z_]+)*):(.+)", text)
    if colon and colon[1].partition(".")[0] in Config.model_fields:
        return f"; did you mean '{shorten(f'{colon[1]}={colon[2].strip()}')}'?"
    if place and texts[place - 1].endswith("="):
        return f"; did you mean '{shorten(texts[place - 1] + text)}', without spaces?"
    return f"; did you mean 'methods={text}'?" if text in table("method") else ""


def split_key(key: str, shown: str) -> Keys:
    """Return the parts of a dotted key; a part such as package.module:name keeps its dots."""
    parts = key.split(".")
    own = next((index for index, part in enumerate(parts) if ":" in part), 0)
    if own > 1:
        parts[1 : own + 1] = [".".join(parts[1 : own + 1])]
    if not all(part and part == part.strip() for part in parts):
        raise ConfigError(f"{shorten(shown)}: found the key '{shorten(key)}', allowed: a dotted key such as seed=1")
    return tuple(parts)
