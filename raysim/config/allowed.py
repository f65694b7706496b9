"""What a key allows, in words, read off its annotation: `Annotated[int, Ge(1)]` is "a whole number >= 1"."""

from __future__ import annotations

import enum
import os
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raysim.config.messages import either


@dataclass(frozen=True)
class Allowed:
    """Annotation metadata: the words for what a key allows, where its type says too little."""

    words: str


def words_of(field: FieldInfo) -> str:
    """Return what a field allows."""
    if field.discriminator:
        return f"a block with {field.discriminator}: {either(choices(field))}, and the keys that this has"
    return either(dict.fromkeys(_words(field.annotation, field.metadata)))


def choices(field: FieldInfo) -> list[str]:
    """Return the names among which a block's deciding key chooses."""
    blocks = [block for block in options(field.annotation) if hasattr(block, "model_fields")]
    return [name for block in blocks for name in literals(block.model_fields[str(field.discriminator)].annotation)]


def options(annotation: object) -> list[object]:
    """Return the types of a union, or the one type."""
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return list(get_args(annotation))
    return [annotation]


def literals(annotation: object) -> list[str]:
    """Return the strings among the literals of an annotation, at any depth: names that may have been meant."""
    if get_origin(annotation) is typing.Literal:
        return [value for value in get_args(annotation) if isinstance(value, str)]
    return [name for part in get_args(annotation) for name in literals(part)]


def _words(annotation: object, metadata: Iterable[object] = ()) -> list[str]:
    metadata = list(_unpacked(metadata))
    for item in metadata:
        if isinstance(item, Allowed):
            return [item.words]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(parts[0], [*parts[1:], *metadata])
    if origin in (typing.Union, types.UnionType):
        return [words for part in parts for words in _words(part, metadata)]
    if origin is typing.Literal:
        return ["null" if part is None else str(part) for part in parts]
    if annotation is int or annotation is float:
        return [("a whole number" if annotation is int else "a number") + _bounds(metadata)]
    if origin in (list, tuple, set, frozenset, Sequence):
        return ["a list of " + _items(origin, parts) + _lengths(metadata)]
    return [_simple(annotation, origin)]


def _unpacked(metadata: Iterable[object]) -> Iterable[object]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _unpacked(item.metadata)
        elif hasattr(item, "__iter__") and not isinstance(item, str):  # annotated_types.Interval, for one
            yield from item
        else:
            yield item


def _bounds(metadata: Iterable[object]) -> str:
    signs = ((Gt, ">", "gt"), (Ge, ">=", "ge"), (Lt, "<", "lt"), (Le, "<=", "le"))
    bounds = [f"{sign} {getattr(item, at)}" for kind, sign, at in signs for item in metadata if isinstance(item, kind)]
    return " " + " and ".join(bounds) if bounds else ""


def _lengths(metadata: Iterable[object]) -> str:
    least = [f", at least {item.min_length}" for item in metadata if isinstance(item, MinLen) and item.min_length]
    most = [f", at most {item.max_length}" for item in metadata if isinstance(item, MaxLen)]
    return "".join(least + most)


def _items(origin: object, parts: tuple[Any, ...]) -> str:
    if origin is tuple and parts and parts[-1] is not Ellipsis:
        each = list(dict.fromkeys(either(_words(part)) for part in parts))
        return f"{len(parts)}: {', '.join(each) if len(each) > 1 else 'each ' + each[0]}"
    words = either(_words(parts[0])) if parts else "values"
    for one, many in (("a whole number", "whole numbers"), ("a number", "numbers"), ("a string", "strings")):
        if words.startswith(one):
            return many + words.removeprefix(one)
    return words


def _simple(annotation: object, origin: object) -> str:
    known = {bool: "true or false", str: "a string", None: "null", type(None): "null", Any: "any value"}
    if annotation in known:
        return known[annotation]
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            return either(str(member.value) for member in annotation)
        if issubclass(annotation, os.PathLike):
            return "a path"
        if issubclass(annotation, BaseModel):
            return f"a block with the keys {', '.join(keys_in(annotation))}"
    kind = origin or annotation
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "a block of keys"
    return "any value" if annotation is object else f"a {getattr(annotation, '__name__', 'value')}"


def keys_in(model: type[BaseModel]) -> list[str]:
    """Return the keys of a block as they are written in YAML."""
    return [field.alias or name for name, field in model.model_fields.items()]
