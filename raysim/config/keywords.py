"""Config keys as keyword arguments of raysim.run and its like, with their types for editors."""

import difflib
from collections.abc import Mapping
from typing import TypedDict

from raysim.config.block import Block
from raysim.config.brought_names import PARAMETERS
from raysim.config.document import Overrides
from raysim.config.error_text import either, find_brought, show
from raysim.config.schema import Config
from raysim.system.errors import ConfigError

Values = Mapping[str, object] | Block
Named = str | Values
"""The name of a component, or a block."""


class ConfigKeys(TypedDict, total=False):
    """The blocks of a config, each a keyword argument. A value replaces the whole block, as on the command line."""

    name: str
    seed: int
    dataset: Named
    scenario: Values
    partition: Named
    clients: Values
    model: Named
    objective: Named
    training: Values
    memory: Values
    methods: Named
    participation: Values
    aggregation: Values
    schedule: Values
    resources: Values
    evaluation: Values
    checkpoint: Values
    logging: Values


class CallbackKeys(ConfigKeys, total=False):
    """The same and callbacks, for functions that have no parameter of this name."""

    callbacks: Named


class SweepKeys(CallbackKeys, total=False):
    """The same and the parts of a sweep's file that overrides may change."""

    grid: Values
    tune: Values
    search: Values


OPTIONS: Mapping[str, tuple[str, ...]] = {
    "run": ("out", "local", "callbacks", "progress", "resume", "trust", "display"),
    "check": (),
    "sweep": ("out", "local", "jobs", "progress", "display"),
    "evaluate": ("trust",),
    "draw_stream": (),
}
"""The functions that take config keys, each with its further parameters."""


def add_keywords(function: str, overrides: Overrides, keywords: Mapping[str, object]) -> Overrides:
    """Return the overrides of a function with its keyword arguments as further ones, which come after them.

    Raises:
        ConfigError: a keyword means a parameter, or is one of another function.
    """
    for name in [name for name in keywords if name not in Config.model_fields]:
        brought = [one for one in find_brought(name, PARAMETERS) if one in OPTIONS[function]]
        near = brought or difflib.get_close_matches(name, OPTIONS[function], n=1, cutoff=0.8)
        owners = [f"raysim.{other}" for other, options in OPTIONS.items() if name in options]
        if near or owners:
            words = f"; did you mean '{near[0]}'?" if near else f", which is one of {either(owners)}"
            raise ConfigError(f"raysim.{function} has no parameter '{name}'{words}", f"{name}={show(keywords[name])}")
    if not keywords or isinstance(overrides, str):
        return overrides
    return [*([overrides] if isinstance(overrides, Mapping) else overrides), keywords]
