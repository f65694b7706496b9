"""The components that a config names: a table's entry, or the user's own as package.module:name.

A table is a dict from a name to "package.module:attribute".
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from raysim.config.document import explain, validation_error
from raysim.config.error_text import describe_unknown, nearest, show
from raysim.system.errors import ConfigError

TABLES = {
    "data set": "raysim.data:DATASETS",
    "model": "raysim.models:MODELS",
    "method": "raysim.algorithms:METHODS",
    "sampler": "raysim.engine.samplers:SAMPLERS",
    "stream": "raysim.federation.assignment:STREAMS",
}

OWN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
INSTEAD = ", or your own as package.module:name"


def table(kind: str) -> Mapping[str, str]:
    """Return the table of a kind, imported only when it is asked for."""
    module, _, attribute = TABLES[kind].partition(":")
    found: Mapping[str, str] = getattr(importlib.import_module(module), attribute)
    return found


def resolve(kind: str, name: str, known: Mapping[str, str] | None = None) -> Callable[..., Any]:
    """Return what a name of a kind ("data set", "model", "method") stands for; `known` is the kind's table."""
    names = table(kind) if known is None else known
    if name in names:
        return _import(kind, name, names[name])
    if ":" not in name:
        raise ConfigError(describe_unknown(kind, name, names, instead=INSTEAD))
    if not OWN.fullmatch(name):
        raise ConfigError(f"found {show(name)}, allowed: a {kind} of your own as package.module:name")
    return _import(kind, name, name)


def check_name(kind: str, name: str) -> str:
    """Return a name of a kind that stands for something; for validators, which say so where it does not."""
    try:
        resolve(kind, name)
    except ConfigError as error:
        raise validation_error(explain((), str(error))) from error
    return name


def _import(kind: str, name: str, target: str) -> Callable[..., Any]:
    module_name, _, attribute = target.partition(":")
    if os.getcwd() not in sys.path:
        # last, so that a file in the working directory never hides an installed package; it stays, for late imports
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ConfigError(
            f"{kind} {show(name)}: the module {module_name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, attribute, None)
    if found is None:
        public = [other for other in vars(module) if not other.startswith("_") and callable(vars(module)[other])]
        near = nearest(attribute, public)
        raise ConfigError(f"{kind} {show(name)}: the module {module_name} has no attribute {show(attribute)}{near}")
    if not callable(found):
        raise ConfigError(f"{kind} {show(name)}: found {show(found)}, allowed: a function or a class")
    return cast(Callable[..., Any], found)
