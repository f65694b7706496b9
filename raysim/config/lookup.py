"""The components that a config names: a table's entry, or the user's own as package.module:name.

A table is a dict from a name to "package.module:attribute". A config is code: what it names is imported and called. So
what is called must have the signature of its kind and come from no module of Python's own; and while somebody else's
config is read (`only_named_by`), what it names is not imported.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from pydantic import ValidationInfo

from raysim.config.block import Block
from raysim.config.document import explain, to_plain, validation_error, walk
from raysim.config.error_text import describe_unknown, nearest, show
from raysim.config.signature import module_of, positional_parameters
from raysim.system.errors import ConfigError

TABLES = {
    "data set": "raysim.data:DATASETS",
    "model": "raysim.models:MODELS",
    "method": "raysim.algorithms:METHODS",
    "sampler": "raysim.engine.samplers:SAMPLERS",
    "stream": "raysim.federation.assignment:STREAMS",
}
PARAMETERS = {
    "data set": ("root", "download"),
    "model": ("shape", "classes"),
    "sampler": ("server", "count", "generator"),
    "stream": ("client", "start"),
}
"""By kind, what a function is called with, apart from its keys."""

FREE = "generator"  # may have any name
METHOD = "raysim.api:Method"  # what a method is a subclass of

OWN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
INSTEAD = ", or your own as package.module:name"

_trusted: ContextVar[frozenset[str] | None] = ContextVar("_trusted", default=None)  # None: all names


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
    trusted = _trusted.get()
    if trusted is not None and name not in trusted and not name.startswith("raysim."):
        words = f"the {kind} {show(name)} is code of somebody's own, which is not imported from a run's directory"
        raise ConfigError(f"{words}; add --trust (in Python trust=True) if you would run it")
    if os.getcwd() not in sys.path:
        # last, so that a file in the working directory never hides an installed package; it stays, for late imports
        sys.path.append(os.getcwd())
    return _check_signature(kind, name, _import(kind, name, name))


@contextmanager
def only_named_by(*configs: object, trust: bool = False) -> Iterator[None]:
    """Import no component of anybody's own in this context, but those that these configs name, or with `trust` all."""
    names = frozenset(name for config in configs for name in own_names(config))
    token = _trusted.set(None if trust else names)
    try:
        yield
    finally:
        _trusted.reset(token)


def own_names(config: object) -> set[str]:
    """Return all text in a config that is a name such as package.module:name, or that looks like one."""
    parts = (part for keys, value in walk(to_plain(config)) for part in (value, *keys[-1:]))  # keys: methods' names
    return {part for part in parts if isinstance(part, str) and OWN.fullmatch(part)}


def check_name(kind: str, name: str, info: ValidationInfo) -> str:
    """Return a name of a kind that stands for something; for validators, which say so where it does not."""
    if info.context == Block.OWN_KEYS:
        return name
    try:
        resolve(kind, name)
    except ConfigError as error:
        raise validation_error(explain((), str(error))) from error
    return name


def _import(kind: str, name: str, target: str) -> Callable[..., Any]:
    module_name, _, attribute = target.partition(":")
    _refuse_pythons_own(kind, name, module_name)
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


def _refuse_pythons_own(kind: str, name: str, module: str) -> None:
    if module.partition(".")[0] in sys.stdlib_module_names:
        words = f"the module {module} is Python's own, allowed: a module of your own or of an installed package"
        raise ConfigError(f"{kind} {show(name)}: {words}")


def _check_signature(kind: str, name: str, component: Callable[..., Any]) -> Callable[..., Any]:
    """Return what a name of the user's own stands for, which has not been called, if it has its kind's signature."""
    _refuse_pythons_own(kind, name, module_of(component))
    if kind == "method":
        method = _import(kind, METHOD, METHOD)
        if not (isinstance(component, type) and isinstance(method, type) and issubclass(component, method)):
            raise ConfigError(f"method {show(name)}: found {show(component)}, allowed: a subclass of raysim.api.Method")
        return component
    wanted = PARAMETERS[kind]
    try:
        found, needed = positional_parameters(component)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{kind} {show(name)}: its signature cannot be read: {error}") from error
    names = [given.lstrip("_") if own != FREE else own for own, given in zip(wanted, found, strict=False)]
    if names != list(wanted) or needed > len(wanted):
        takes, keys = ", ".join(wanted), " and its keys, which are keyword-only" * (kind != "stream")
        raise ConfigError(f"{kind} {show(name)}: found the parameters ({', '.join(found)}), allowed: ({takes}){keys}")
    return component
