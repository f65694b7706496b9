"""The YAML keys of a component: its keyword-only parameters, with annotations, ranges, defaults and descriptions.

def npz(root: Path, *, path: Annotated[str, doc("the file")], scale: Annotated[float, Gt(0)] = 1.0) -> Images: ...
"""

import dataclasses
import enum
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_origin

from annotated_types import DocInfo
from pydantic import BaseModel, ConfigDict, Field, create_model

from raysim.config.block import Block, Positive
from raysim.system.custom_code import bare_function
from raysim.system.errors import ConfigError

Component = Callable[..., Any]
Function = TypeVar("Function", bound=Component)

LISTS = (tuple, set, frozenset)  # types that a list of YAML is converted to


class _Keys(Block):
    model_config = ConfigDict(use_attribute_docstrings=False)  # it has no source to look for them in


def keys_of(component: Component) -> type[Block]:
    """Return a block with one field per keyword-only parameter: the YAML keys of a function or a kw_only dataclass.

    A component that is such a block itself is returned.
    """
    if isinstance(component, type) and issubclass(component, Block):
        return component
    return _made_keys(component) if isinstance(component, Hashable) else _made_keys.__wrapped__(component)


@functools.cache  # a sweep asks hundreds of times, and making a block takes milliseconds
def _made_keys(component: Component) -> type[Block]:
    name = getattr(component, "__name__", type(component).__name__)
    try:
        parameters = [p for p in inspect.signature(component).parameters.values() if p.kind is p.KEYWORD_ONLY]
        hints = _read_hints(component, [p.name for p in parameters])
        # the fields get names of their own, so that a key may be called copy or json as pydantic's methods are
        fields = {f"key_{p.name}": _to_field(component, p, hints.get(p.name, Any)) for p in parameters}
        rate = getattr(component, "default_lr", None)
        if rate is not None and "key_default_lr" not in fields:  # an optimizer: its steps receive the rate, not it
            fields = {"key_lr": (Positive, Field(rate, alias="lr", description="the learning rate")), **fields}
        make: Any = create_model  # its overloads do not know fields that are given as a mapping
        made: type[Block] = make(f"Keys of {name}", __base__=_Keys, **fields)
        return made
    except Exception as error:
        raise ConfigError(f"the keys of {name} cannot be read from its signature: {error}") from error


def takes_keys_of(owner: type, before: str | None = None) -> Callable[[Function], Function]:
    """Return a decorator: a function with `**keys` has the fields of a kw_only dataclass as keyword-only parameters.

    Args:
        owner: the dataclass.
        before: the field that the function's own keyword-only parameters precede; by default they are the first ones.
    """

    def decorate(function: Function) -> Function:
        signature, theirs = inspect.signature(function), [*inspect.signature(owner).parameters.values()]
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
        place = next((index for index, p in enumerate(theirs) if p.name == before), 0)
        keys = [*theirs[:place], *parameters[len(positional) :], *theirs[place:]]
        described: Any = function
        described.__signature__ = signature.replace(parameters=[*positional, *keys])
        described.__annotations__ |= typing.get_type_hints(owner, include_extras=True)
        return function

    return decorate


def own_values(keys: BaseModel) -> dict[str, object]:
    """Return the validated values of a block from `keys_of`, by their YAML names."""
    return {field.alias or name: getattr(keys, name) for name, field in type(keys).model_fields.items()}


def positional_parameters(component: Component) -> tuple[list[str], int]:
    """Return the names of the parameters that may be given by position, and how many of them must be.

    Nothing is called for this. Raises TypeError or ValueError where there is no signature to read.
    """
    every = inspect.signature(component).parameters.values()
    found = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [p.name for p in found], sum(p.default is p.empty for p in found)


def keyword_parameters(component: Component) -> list[str]:
    """Return the names of the keyword-only parameters. Raises TypeError or ValueError as `positional_parameters`."""
    return [p.name for p in inspect.signature(component).parameters.values() if p.kind is p.KEYWORD_ONLY]


def _read_hints(component: Component, names: Sequence[str]) -> dict[str, Any]:
    """Return the annotations of these parameters; others may name what is imported for type checkers only."""
    bare: Any = bare_function(component)
    if isinstance(bare, type) and dataclasses.is_dataclass(bare):
        return typing.get_type_hints(bare, include_extras=True)
    if isinstance(bare, type):
        bare = typing.cast(Any, bare).__init__
    elif not inspect.isroutine(bare):
        bare = type(bare).__call__
    bare = inspect.unwrap(bare)
    found = {name: hint for name, hint in getattr(bare, "__annotations__", {}).items() if name in names}
    holder: Any = types.SimpleNamespace(__annotations__=found)
    return typing.get_type_hints(holder, getattr(bare, "__globals__", {}), include_extras=True)


def _to_field(component: Component, parameter: inspect.Parameter, annotation: Any) -> tuple[Any, Any]:
    annotation = _accept_yaml(annotation)
    texts = [item.documentation for item in get_args(annotation) if isinstance(item, DocInfo)]
    text = texts[-1] if texts else None
    if parameter.default is parameter.empty:
        return annotation, Field(alias=parameter.name, description=text)
    if isinstance(component, type) and dataclasses.is_dataclass(component):
        for field in dataclasses.fields(component):
            if field.name == parameter.name and field.default_factory is not dataclasses.MISSING:
                return annotation, Field(default_factory=field.default_factory, alias=parameter.name, description=text)
    return annotation, Field(parameter.default, alias=parameter.name, description=text)


def _accept_yaml(annotation: Any) -> Any:
    """Return an annotation with tuples, sets, paths and enums that accept YAML's lists and strings."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[(_accept_yaml(parts[0]), *parts[1:])]
    if origin in (typing.Union, types.UnionType):
        union: Any = typing.Union  # of parts that are known only now
        return union[tuple(_accept_yaml(part) for part in parts)]
    if origin is Sequence:  # whatever it was given, it becomes a tuple: equal values must compare equal
        return _accept_yaml(typing.cast(Any, tuple)[parts[0], ...])
    if origin in (*LISTS, list, dict):
        inner = origin[tuple(part if part is Ellipsis else _accept_yaml(part) for part in parts)]
        return Annotated[inner, Field(strict=False)] if origin in LISTS else inner
    is_lenient = isinstance(annotation, type) and issubclass(annotation, enum.Enum | os.PathLike)
    return Annotated[annotation, Field(strict=False)] if is_lenient or annotation in LISTS else annotation
