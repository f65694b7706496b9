"""Error messages from pydantic's errors: the value that was found, the allowed ones, the nearest name."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from raysim.config.block import Allowed, KeySchema, blocks_in, keys_in
from raysim.config.brought_names import BLOCKS, KEYS, NAMES, NONE_NEEDED
from raysim.config.component import ByName, Component
from raysim.config.document import REQUIRED, Keys, Mistake, dotted
from raysim.config.error_text import (
    describe_unknown,
    either,
    find_brought,
    find_nearest,
    find_slip,
    nearest,
    quote_meant,
    shorten,
    show,
)
from raysim.config.lookup import resolve, table
from raysim.config.signature import keys_of
from raysim.system.errors import ConfigError
from raysim.system.version import VERSION

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
    near = _find_block(field, schema, keys, value) or next(
        filter(None, (nearest(i, schema.names()) for i in items)), ""
    )
    return Mistake(keys, f"found {show(value)}, allowed: {schema.words()}{near}")


def _find_block(field: FieldInfo, schema: KeySchema, keys: Keys, value: object) -> str:
    """Return the suggestion for a value that is given in the place of a block, or nothing."""
    at, is_block = dotted(keys), any(blocks_in(field.annotation))
    if isinstance(value, list) and any(isinstance(item, ByName) for item in field.metadata):
        return suggest_names(at, value)
    if any(value in keys_in(block) for block in blocks_in(field.annotation) if isinstance(value, str)):
        return f"; did you mean '{at}={{{value}: ...}}'?"
    if schema.selector() and isinstance(value, str):
        names = schema.choices()
        brought = find_brought(value, NAMES["task scenario"]) if keys == ("scenario",) else []
        choice = value if value in names else find_nearest(value, names)
        kind, _, further = brought[0].partition(" with ") if brought else (choice, "", "")
        if kind in names:
            return f"; did you mean '{at}={schema.example(str(kind))}'" + f" with '{further}'" * bool(further) + "?"
    if is_block and at in BLOCKS and isinstance(value, bool | int | float | str):
        typed = show(value).strip("'")
        whole = len(BLOCKS[at]) > 1 or "=" in BLOCKS[at][0]
        meant = BLOCKS[at] if whole else [f"{BLOCKS[at][0]}={typed}"]
        return f"; did you mean {either(map(quote_meant, meant))}?"
    return ""


def suggest_names(at: str, names: Sequence[object]) -> str:
    """Return the suggestion for names that are given as a list, or nothing where they are no names."""
    if not names or not all(isinstance(name, str) for name in names):
        return ""
    typed = ", ".join(f"{name}: {{}}" for name in names)
    return f"; did you mean '{shorten(f'{at}={{{typed}}}')}'?"


def _explain_unknown(root: type[BaseModel], values: Values, keys: Keys, block: type[BaseModel]) -> Mistake:
    key, above = str(keys[-1]), keys[:-1]
    if "." in key:
        parts = re.findall(r"(?:(?<=\.)[^:]+:)?[^.]+", key)  # package.module:name is one part
        nested = ": {".join(parts) + ": ..." + "}" * (len(parts) - 1)
        return Mistake(keys, f"found a key with a dot, allowed in YAML: {nested}")
    of = "".join(f" of {kind}" for _, kind in _kinds(block))
    others = [one for one in _follow(root, above)[2] if key in keys_in(one)]
    elsewhere = [f"{dotted(above)}.{name}={kind}" for one in others for name, kind in _kinds(one)]
    return Mistake(keys, describe_unknown_key(root, values, keys, keys_in(block), of, elsewhere))


def _kinds(block: type[BaseModel]) -> list[tuple[str, str]]:
    """Return the key that selects a block among several, such as kind, with its value; none for other blocks."""
    kinds = [(name, field.annotation) for name, field in block.model_fields.items()]
    return [(name, *get_args(kind)) for name, kind in kinds if get_origin(kind) is Literal and len(get_args(kind)) == 1]


def describe_unknown_key(
    root: type[BaseModel],
    values: Values,
    keys: Keys,
    known: Iterable[str],
    of: str,
    elsewhere: Sequence[str] = (),
) -> str:
    """Return a message about an unknown key, with the keys that may be meant.

    Meanings of names from other frameworks come first, with keys of the same name that the config has. Similar keys
    come next: those of its block, and for a key at the top level all others. A key of what the config does not choose
    is named as such, since following it would change what is simulated.

    Args:
        root: the block of the whole config.
        values: the values of the whole config.
        keys: the unknown key.
        known: the keys of its block.
        of: the owner of these, with " of " in front.
        elsewhere: the choices of its block that have the key, and that the config does not make.
    """
    name, above, known = str(keys[-1]), keys[:-1], list(known)
    reason = NONE_NEEDED.get(name.lower().replace("-", "_"))
    if reason and not find_slip(name, known):
        return f"unknown key {show(name)}{of}, and none is needed: {reason}"
    meant = [] if elsewhere else find_meant(root, values, keys, known)
    if not meant and not elsewhere and not find_nearest(name, known) and above[:1] != ("methods",):
        found = sorted(set(_find_unchosen(root, values, name)))
        if above:
            found = [one for one in found if one.startswith(f"{dotted(above)}.")]
        else:
            found += [f"methods.{method}" for method in table("method") if name in _own_keys("method", method)]
        elsewhere = found if len(found) <= MOST_MEANT else []
    if not (meant or elsewhere or find_nearest(name, known)) and above[:1] != ("methods",):
        of += f" in raysim {VERSION}"  # the config may be of a later one
    return describe_unknown("key", name, known, of, meant=meant, elsewhere=elsewhere)


def find_meant(root: type[BaseModel], values: Values, keys: Keys, known: Sequence[str]) -> list[str]:
    """Return the keys elsewhere that may be meant by an unknown one: none, one or two."""
    name, above = str(keys[-1]), keys[:-1]

    def is_below(other: Keys) -> bool:
        return other[-1] == name and other[: len(above)] == above and other != keys

    if find_slip(name, known):
        return []  # which is suggested without this
    given = _value_at(values, keys)
    dots = [dotted(keys)] if above else []
    dots += [dotted((*keys, key)) for key in given] if isinstance(given, Mapping) else []
    if in_its_block := [own for one in dots for own in find_brought(one, KEYS)]:
        return in_its_block[:MOST_MEANT]
    brought = find_brought(name, KEYS)
    if not brought and find_nearest(name, known) and not any(map(is_below, _walk_keys(root, None))):
        return []  # before the components are imported, which takes seconds
    everywhere = sorted(set(_walk_keys(root, values)))
    same = [other for other in everywhere if other[-1] == name and other != keys]  # of another kind of block
    if above[:1] == ("methods",):
        same = [other for other in same if other[0] != "methods"]
    meant = [dotted(other) for other in [*filter(is_below, same)] or same]
    meant = [*dict.fromkeys([*brought, *meant])]
    if not meant and not above:
        meant = _find_slips(name, everywhere)
    return meant if len(meant) <= MOST_MEANT else []


def _find_slips(name: str, everywhere: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the keys, or the meanings of names from other frameworks, of which a name is a slip."""
    others = (other for names in KEYS.values() for other in names if "." not in other)
    slip = find_slip(name, [*(keys[-1] for keys in everywhere), *others])
    return find_brought(slip, KEYS) or [dotted(keys) for keys in everywhere if keys[-1] == slip]


def _walk_keys(block: type[BaseModel], values: Values | None) -> Iterator[tuple[str, ...]]:
    """Yield all keys below a block; with the values of a config, only those of what it chooses, and its components'."""
    for name, field in block.model_fields.items():
        yield (name,)
        given = None if values is None else values.get(name)
        inner = given if isinstance(given, Mapping) else {}
        for kind in (item.kind for item in field.metadata if isinstance(item, ByName)):
            yield from ((name, chosen, key) for chosen in inner for key in _own_keys(kind, chosen))
        for below in blocks_in(field.annotation):
            if values is not None and not _is_chosen(below, inner):
                continue
            yield from ((name, *keys) for keys in _walk_keys(below, None if values is None else inner))
            if values is not None and issubclass(below, Component):
                yield from ((name, key) for key in _own_keys(below.what, _chosen_name(below, given)))


def _find_unchosen(block: type[BaseModel], values: Values, key: str, above: Keys = ()) -> Iterator[str]:
    """Yield the choices that have a key and that the config does not make, such as partition.kind=shards."""
    for name, field in block.model_fields.items():
        given, at = values.get(name), (*above, name)
        inner = given if isinstance(given, Mapping) else {}
        for below in blocks_in(field.annotation):
            if issubclass(below, Component):
                chosen = _chosen_name(below, given)
                having = (one for one in table(below.what) if one != chosen and key in _own_keys(below.what, one))
                yield from (f"{dotted(at)}.{below.decides}={known}" for known in having)
            elif not _is_chosen(below, inner):
                yield from (f"{dotted(at)}.{word}={kind}" for word, kind in _kinds(below) if key in keys_in(below))
            else:
                yield from _find_unchosen(below, inner, key, at)


def _is_chosen(block: type[BaseModel], given: Values) -> bool:
    """Return whether a config chooses a block among several."""
    return all(given.get(name, block.model_fields[name].default) == kind for name, kind in _kinds(block))


def _chosen_name(block: type[Component], given: object) -> object:
    """Return the name of the component that a config chooses, or the value in place of one."""
    chosen = given if isinstance(given, str) else given.get(block.decides) if isinstance(given, Mapping) else None
    return block.model_fields[block.decides].default if chosen is None else chosen


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
    brought = find_brought(found, NAMES["task scenario"]) if keys == ("scenario", "kind") else []
    near = f"; did you mean {quote_meant(brought[0])}?" if brought else nearest(found, names)
    return Mistake(keys, f"found {show(found)}, {allowed}{near}")


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
