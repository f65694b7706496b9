"""Error messages from pydantic's errors: the value that was found, the allowed ones, the nearest name."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

from raysim.config.block import Allowed, KeySchema, blocks_in, keys_in
from raysim.config.component import ByName, Component
from raysim.config.document import REQUIRED, Keys, Mistake
from raysim.config.error_text import describe_unknown, either, find_nearest, nearest, show
from raysim.config.lookup import resolve, table
from raysim.config.signature import keys_of
from raysim.system.errors import ConfigError

Values = Mapping[str, object]

MOST_MEANT = 2  # keys that are suggested for an unknown one


def explain_errors(block: type[BaseModel], values: Values, error: ValidationError) -> list[Mistake]:
    """Return the mistakes for which pydantic refused a block's values, one for each key.

    A mistake inside a block replaces one of the whole block, which says less.
    """
    found: dict[Keys, Mistake] = {}
    for line in error.errors(include_url=False):
        mistake = _explain(block, values, line)
        found.setdefault(mistake.keys, mistake)
    return [
        mistake
        for keys, mistake in found.items()
        if not any(len(other) > len(keys) and other[: len(keys)] == keys for other in found)
    ]


def _explain(root: type[BaseModel], values: Values, line: Mapping[str, Any]) -> Mistake:
    loc = line["loc"]
    if line["type"] == "extra_forbidden":
        around, _, (block, *_) = _follow(root, loc[:-1])
        return _explain_unknown(root, values, (*around, loc[-1]), block)
    keys, owners, _ = _follow(root, loc)
    while keys and isinstance(keys[-1], int):  # a list is worded as a whole
        keys = keys[:-1]
    if not keys:
        return Mistake((), f"found {show(line['input'])}: {line['msg']}")
    block = owners[-1]
    name = keys_in(block)[str(keys[-1])]
    field, schema, value = block.model_fields[name], KeySchema(block, name), _value_at(values, keys)
    if line["type"] == "missing" and loc[-1] == keys[-1]:
        return Mistake(keys, f"{REQUIRED}, allowed: {schema.words()}", missing=True)
    reason = line.get("ctx", {}).get("error")
    if isinstance(reason, Exception) and not any(isinstance(item, Allowed) for item in field.metadata):
        return Mistake(keys, f"found {show(value)}: {reason}")
    if schema.selector() and isinstance(value, Mapping):
        return _explain_choice((*keys, schema.selector()), value, schema.choices())
    items = value if isinstance(value, list | tuple) else [value]
    near = next(filter(None, (nearest(item, schema.names()) for item in items)), "")
    return Mistake(keys, f"found {show(value)}, allowed: {schema.words()}{near}")


def _explain_unknown(root: type[BaseModel], values: Values, keys: Keys, block: type[BaseModel]) -> Mistake:
    key, above = str(keys[-1]), keys[:-1]
    if "." in key:
        parts = re.findall(r"(?:(?<=\.)[^:]+:)?[^.]+", key)  # package.module:name is one part
        nested = ": {".join(parts) + ": ..." + "}" * (len(parts) - 1)
        return Mistake(keys, f"found a key with a dot, allowed in YAML: {nested}")
    of = "".join(f" of {kind}" for _, kind in _kinds(block))
    others = [one for one in _follow(root, above)[2] if key in keys_in(one)]
    kinds = [(name, kind) for one in others for name, kind in _kinds(one)]
    elsewhere = [f"{'.'.join(map(str, above))}={{{name}: {kind}, {key}: ...}}" for name, kind in kinds]
    meant = elsewhere or find_meant(root, values, keys, keys_in(block))
    return Mistake(keys, describe_unknown("key", key, keys_in(block), of, meant=meant))


def _kinds(block: type[BaseModel]) -> list[tuple[str, str]]:
    """Return the key that selects a block among several, such as kind, with its value; none for other blocks."""
    kinds = [(name, field.annotation) for name, field in block.model_fields.items()]
    return [(name, *get_args(kind)) for name, kind in kinds if get_origin(kind) is Literal and len(get_args(kind)) == 1]


def find_meant(root: type[BaseModel], values: Values, keys: Keys, beside: Iterable[str]) -> list[str]:
    """Return the keys elsewhere that may be meant by an unknown one: none, one or two.

    A key of the same name further down comes first, then a similar one of the same block (`beside`), for which the
    result is empty. Then come keys of the same name anywhere, those of components that the config does not choose,
    similar ones anywhere, and those of methods. For a method's key, only keys of the same name outside methods count.
    """
    name, above = str(keys[-1]), keys[:-1]

    def is_below(other: Keys) -> bool:
        return other[-1] == name and other[: len(above)] == above and other != keys

    if find_nearest(name, list(beside)) and not any(map(is_below, _walk_keys(root, None))):
        return []  # before the components are imported, which takes seconds
    everywhere = sorted(set(_walk_keys(root, values)))
    same = [other for other in everywhere if other[-1] == name and other != keys]  # of another kind of block
    similar = find_nearest(name, [other[-1] for other in everywhere])
    if above[:1] == ("methods",):
        meant = [".".join(other) for other in same if other[0] != "methods"]
    else:
        meant = (
            [".".join(other) for other in [*filter(is_below, same)] or same]
            or sorted(set(_find_in_components(root, name)))
            or [".".join(other) for other in everywhere if other[-1] == similar]
            or [f"methods.{method}.{name}" for method in table("method") if name in _own_keys("method", method)]
        )
    return meant if len(meant) <= MOST_MEANT else []


def _walk_keys(block: type[BaseModel], values: Values | None) -> Iterator[tuple[str, ...]]:
    """Yield all keys below a block; with the values of a config, also those of the components that it chooses."""
    for name, field in block.model_fields.items():
        yield (name,)
        given = None if values is None else values.get(name)
        inner = given if isinstance(given, Mapping) else {}
        for kind in (item.kind for item in field.metadata if isinstance(item, ByName)):
            yield from ((name, chosen, key) for chosen in inner for key in _own_keys(kind, chosen))
        for below in blocks_in(field.annotation):
            yield from ((name, *keys) for keys in _walk_keys(below, None if values is None else inner))
            if values is not None and issubclass(below, Component):
                chosen = given if isinstance(given, str) else inner.get(below.decides)
                usual = below.model_fields[below.decides].default
                yield from ((name, key) for key in _own_keys(below.what, usual if chosen is None else chosen))


def _find_in_components(block: type[BaseModel], key: str) -> Iterator[str]:
    """Yield where a key of any of raysim's components is given, as in partition={kind: shards, KEY: ...}."""
    for name, field in block.model_fields.items():
        for below in blocks_in(field.annotation):
            if issubclass(below, Component):
                having = (known for known in table(below.what) if key in _own_keys(below.what, known))
                yield from (f"{name}={{{below.decides}: {known}, {key}: ...}}" for known in having)
            else:
                yield from (f"{name}.{found}" for found in _find_in_components(below, key))


def _own_keys(kind: str, name: object) -> list[str]:
    try:
        return [*keys_in(keys_of(resolve(kind, name)))] if isinstance(name, str) else []
    except ConfigError:  # said elsewhere
        return []


def _explain_choice(keys: Keys, block: Values, names: list[str]) -> Mistake:
    """Return the mistake of a block with a missing or wrong selecting key, such as kind."""
    allowed = f"allowed: {either(names)}"
    if keys[-1] not in block:
        return Mistake(keys, f"{REQUIRED}, {allowed}", missing=True)
    found = block[str(keys[-1])]
    return Mistake(keys, f"found {show(found)}, {allowed}{nearest(found, names)}")


def _follow(root: type[BaseModel], loc: Keys) -> tuple[Keys, list[type[BaseModel]], list[type[BaseModel]]]:
    """Return the keys in an error's location, the blocks that have them, and the blocks that the last key may hold.

    A location also has the options of unions that pydantic tried. A block's class or kind selects a block. Others, such
    as `constrained-int`, do not matter for the place.
    """
    keys: Keys = ()
    owners: list[type[BaseModel]] = []
    options = [root]
    for part in loc:
        owner = next((option for option in options if part in keys_in(option)), None)
        if owner is not None:
            keys, options = (*keys, part), [*blocks_in(owner.model_fields[keys_in(owner)[str(part)]].annotation)]
            owners.append(owner)
        elif isinstance(part, int):
            keys = (*keys, part)
        else:
            options = [option for option in options if part in _labels(option)] or options
    return keys, owners, options


def _labels(block: type[BaseModel]) -> set[object]:
    """Return pydantic's names for a block in a union: its class, or the values of its selecting key."""
    literals = (field.annotation for field in block.model_fields.values() if get_origin(field.annotation) is Literal)
    return {block.__name__, *(name for literal in literals for name in get_args(literal))}


def _value_at(values: object, keys: Keys) -> object:
    for key in keys:
        if isinstance(values, Mapping):
            values = values.get(str(key))
        else:
            values = values[key] if isinstance(values, list) and isinstance(key, int) and key < len(values) else None
    return values
