"""The config: YAML and KEY=VALUE in, one frozen and validated `Config` out, or a `ConfigError` of one line.

Every key is declared once, in the block that it belongs to: schema.py, experiment.py, timing.py, component_blocks.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from raysim.config.consistency import contradictions
from raysim.config.document import Document, to_plain, walk
from raysim.config.error_text import show
from raysim.config.experiment import AdamConfig, SgdConfig
from raysim.config.json_schema import build_json_schema
from raysim.config.overrides import apply_overrides
from raysim.config.refusal import to_config_error, validation_error
from raysim.config.schema import LARGEST_FLOAT32, Config
from raysim.config.yaml_reading import read_yaml
from raysim.config.yaml_writing import dump
from raysim.system.errors import ConfigError

__all__ = ["AdamConfig", "Config", "ConfigError", "SgdConfig", "build_json_schema", "dump", "load", "validate"]


def load(
    source: str | Path | Mapping[str, object] | Config, overrides: Sequence[str] | Mapping[str, object] = ()
) -> Config:
    """Return the config of a YAML file, a mapping or another config, with overrides put in its place.

    Overrides are KEY=VALUE strings, or a mapping from dotted keys to values. What is wrong is a ConfigError.
    """
    document = open_document(source)
    apply_overrides(document, overrides)
    return validate(document)


def validate(document: Document) -> Config:
    """Return the config that a document's values are; what is wrong with them is a ConfigError."""
    for keys, value in walk(document.values):
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(document.locate(keys, f"found {show(value)}, allowed: a finite number"))
    try:
        config = Config.model_validate(document.values)
        if errors := list(contradictions(config)):
            raise validation_error(*errors)
    except ValidationError as error:
        raise to_config_error(error, document) from None
    for keys, value in walk(to_plain(config)):
        if isinstance(value, float) and abs(value) > LARGEST_FLOAT32:  # torch refuses it in the middle of a step
            allowed = f"numbers up to {LARGEST_FLOAT32:.2g}, the largest in single precision"
            raise ConfigError(document.locate(keys, f"found {show(value)}, allowed: {allowed}"))
    return config


def open_document(source: str | Path | Mapping[str, object] | Config) -> Document:
    """Return the values of a YAML file, a mapping or a config, not validated yet."""
    if isinstance(source, str | Path):
        return read_yaml(source)
    values = to_plain(source)
    if not isinstance(values, dict):
        raise ConfigError(f"found {show(source)}, allowed: a path, a mapping or a Config")
    return Document(None, values)
