"""Everything that YAML names: a table's entry, or the user's own as package.module:name; and the keys that it has.

A table is a dict from a name to "package.module:attribute". The keyword-only parameters of what it leads to are its
YAML keys, with their annotations, ranges and defaults:

    def npz(root: Path, *, path: str, scale: Annotated[float, Gt(0)] = 1.0) -> Images: ...
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import os
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, Field, create_model

from raysim.config.block import Block, explained, refused
from raysim.config.messages import nearest, show, unknown
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
        return _imported(kind, name, names[name])
    if ":" not in name:
        raise ConfigError(unknown(kind, name, names, instead=INSTEAD))
    if not OWN.fullmatch(name):
        raise ConfigError(f"found {show(name)}, allowed: a {kind} of your own as package.module:name")
    return _imported(kind, name, name)


def known(kind: str, name: str) -> str:
    """Return a name of a kind that stands for something; for validators, which say so where it does not."""
    try:
        resolve(kind, name)
    except ConfigError as error:
        raise refused(kind, [explained((), str(error), name)]) from error
    return name


def _imported(kind: str, name: str, target: str) -> Callable[..., Any]:
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
    return typing.cast(Callable[..., Any], found)


def keys_of(component: Callable[..., Any]) -> type[Block]:
    """Return a block with one field per keyword-only parameter: the YAML keys of a function or a kw_only dataclass."""
    name = getattr(component, "__name__", type(component).__name__)
    try:
        hints = _hints(component)
        parameters = [p for p in inspect.signature(component).parameters.values() if p.kind is p.KEYWORD_ONLY]
        # the fields get names of their own, so that a key may be called copy or json as pydantic's methods are
        fields = {f"key_{p.name}": _field(component, p, hints.get(p.name, Any)) for p in parameters}
        make: Any = create_model  # its overloads do not know fields that are given as a mapping
        made: type[Block] = make(f"Keys of {name}", __base__=Block, **fields)
        return made
    except Exception as error:
        raise ConfigError(f"the keys of {name} cannot be read from its signature: {error}") from error


def _hints(component: Callable[..., Any]) -> dict[str, Any]:
    bare = component
    while isinstance(bare, functools.partial):
        bare = bare.func
    if isinstance(bare, type) and not dataclasses.is_dataclass(bare):
        return typing.get_type_hints(typing.cast(Any, bare).__init__, include_extras=True)
    if not isinstance(bare, type) and not inspect.isroutine(bare):
        return typing.get_type_hints(type(bare).__call__, include_extras=True)
    return typing.get_type_hints(bare, include_extras=True)


def _field(component: Callable[..., Any], parameter: inspect.Parameter, annotation: Any) -> tuple[Any, Any]:
    annotation = from_lists(annotation)
    if parameter.default is parameter.empty:
        return annotation, Field(alias=parameter.name)
    if isinstance(component, type) and dataclasses.is_dataclass(component):
        for field in dataclasses.fields(component):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                return annotation, Field(default_factory=field.default_factory, alias=parameter.name)
    return annotation, Field(parameter.default, alias=parameter.name)


def from_lists(annotation: Any) -> Any:
    """Return an annotation whose tuples, sets, paths and enums take what YAML has for them: lists and strings."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[(from_lists(parts[0]), *parts[1:])]
    if origin in (typing.Union, types.UnionType):
        union: Any = typing.Union  # of parts that are known only now
        return union[tuple(from_lists(part) for part in parts)]
    if origin is Sequence:  # whatever it was given, it becomes a tuple: equal values must compare equal
        return from_lists(typing.cast(Any, tuple)[parts[0], ...])
    if origin in (tuple, set, frozenset, list, dict):
        inner = origin[tuple(part if part is Ellipsis else from_lists(part) for part in parts)]
        return inner if origin in (list, dict) else Annotated[inner, Field(strict=False)]
    lenient = annotation in (tuple, set, frozenset) or _takes_strings(annotation)
    return Annotated[annotation, Field(strict=False)] if lenient else annotation


def _takes_strings(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, enum.Enum | os.PathLike)


def own_values(keys: BaseModel) -> dict[str, object]:
    """Return the validated values of a block from `keys_of`, by their YAML names."""
    return {field.alias or name: getattr(keys, name) for name, field in type(keys).model_fields.items()}
