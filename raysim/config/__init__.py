"""The config: YAML and KEY=VALUE in, one frozen and validated `Config` out, or a `ConfigError` of one line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from raysim.config.blocks import Adam, Sgd
from raysim.config.document import Document, plain, walk
from raysim.config.json_schema import schema
from raysim.config.messages import located, refusal, show
from raysim.config.overrides import apply
from raysim.config.reading import read
from raysim.config.schema import Config
from raysim.config.writing import dump
from raysim.system.errors import ConfigError

LARGEST = float.fromhex("0x1.fffffep+127")
"""The largest finite number in single precision."""

__all__ = ["Adam", "Config", "ConfigError", "Sgd", "dump", "load", "open_document", "schema", "validated"]


def load(
    source: str | Path | Mapping[str, object] | Config, overrides: Sequence[str] | Mapping[str, object] = ()
) -> Config:
    """Return the config of a YAML file, a mapping or another config, with overrides put in its place.

    Overrides are KEY=VALUE strings, or a mapping from dotted keys to values. What is wrong is a ConfigError.
    """
    document = open_document(source)
    apply(document, overrides)
    return validated(document)


def validated(document: Document) -> Config:
    """Return the config that a document's values are."""
    for keys, value in walk(document.values):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(located(document, keys, f"found {show(value)}, allowed: a finite number"))
    try:
        config = Config.model_validate(document.values)
    except ValidationError as error:
        raise refusal(error, document) from None
    for keys, value in walk(plain(config)):
        if isinstance(value, float) and abs(value) > LARGEST:  # torch refuses it in the middle of a step
            words = f"found {show(value)}, allowed: numbers up to {LARGEST:.2g}, the largest in single precision"
            raise ConfigError(located(document, keys, words))
    return config


def open_document(source: str | Path | Mapping[str, object] | Config) -> Document:
    """Return the values of a YAML file, a mapping or a config, not validated yet."""
    if isinstance(source, str | Path):
        return read(source)
    values = plain(source)
    if not isinstance(values, dict):
        raise ConfigError(f"found {show(source)}, allowed: a path, a mapping or a Config")
    return Document(None, values)
