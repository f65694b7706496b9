"""The reference of all keys: as JSON Schema for editors, and as text for `raysim list` and the documentation."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raysim.config.block import KeySchema, Schema
from raysim.config.component import Component
from raysim.config.document import to_plain
from raysim.config.error_text import describe_unknown
from raysim.config.experiment import MemoryConfig
from raysim.config.lookup import KINDS, groups, resolve, table
from raysim.config.schema import Config
from raysim.config.signature import keys_of
from raysim.config.yaml_text import to_yaml_line
from raysim.system.errors import ConfigError

ALLOWED_OWN = {"type": "string", "pattern": ":", "description": "your own, as package.module:name"}
MEMORY = "memory"  # the block of what methods with a replay memory share
REQUIRED_KEY = "required"  # in the place of a default


def build_json_schema() -> Schema:
    """Return the JSON Schema of a config: every key with its description, default and range."""
    whole = Config.model_json_schema(by_alias=True, mode="validation")
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    definitions: Schema = whole["$defs"]
    blocks = {block.__name__: block for block in _subclasses(Component) if block.__name__ in definitions}
    short = {f"#/$defs/{name}": _complete_named(definitions, name, block) for name, block in blocks.items()}
    for block in (whole, *definitions.values()):
        for value in block.get("properties", {}).values():
            _require_choice(definitions, value)
    whole["properties"]["methods"] |= _by_name(definitions, "method")
    # what runs without methods
    whole["properties"]["methods"]["properties"]["fedavg"] = {"type": ["object", "null"], "maxProperties": 0}
    whole["properties"]["callbacks"] |= _by_name(definitions, "callback")
    _allow_names(whole, short)
    whole["properties"]["scenario"]["oneOf"].append(
        {"properties": {"kind": ALLOWED_OWN}, "required": ["kind", "tasks"]}
    )
    return whole


def _subclasses(block: type[Component]) -> Iterator[type[Component]]:
    for below in block.__subclasses__():
        yield below
        yield from _subclasses(below)


def _allow_names(part: object, short: Mapping[str, list[Schema]]) -> None:
    """Allow a name in place of a block that names a component."""
    if isinstance(part, list):
        for inner in part:
            _allow_names(inner, short)
    elif isinstance(part, dict):
        for inner in part.values():
            _allow_names(inner, short)
        if part.get("$ref") in short:
            reference = part.pop("$ref")
            part["anyOf"] = [*short[reference], {"$ref": reference}]


def _require_choice(definitions: Schema, value: Schema) -> None:
    """Require the selecting key (kind, name) of all options except the default, so that exactly one option fits."""
    decides = value.get("discriminator", {"mapping": {}})
    for name, reference in decides["mapping"].items():
        key = decides["propertyName"]
        if name != value.get("default", {}).get(key):
            option = definitions[reference.rpartition("/")[2]]
            option["required"] = sorted({key, *option.get("required", [])})


def _complete_named(definitions: Schema, name: str, block: type[Component]) -> list[Schema]:
    """Make a block's other keys depend on the name in it. Return the schemas of its short forms."""
    found: Schema = definitions[name]
    common, decides = found["properties"], block.decides
    usual = block.model_fields[decides].default
    components = list(_components(definitions, block.what))
    if not components:
        return [ALLOWED_OWN]
    common[decides] |= {"anyOf": [{"enum": list(table(block.what))}, ALLOWED_OWN]}
    found["allOf"] = [
        {
            "if": {"properties": {decides: {"const": name}}}
            | ({"required": [decides]} if isinstance(usual, str) and usual != name else {}),
            "then": {
                "properties": {**dict.fromkeys(common, True), **own["properties"]},
                "required": own.get("required", []),
                "additionalProperties": False,
            },
        }
        for name, own in components
    ]
    return [{"enum": [name for name, own in components if not own.get("required")]}, ALLOWED_OWN]


def _by_name(definitions: Schema, kind: str) -> Schema:
    own: Schema = {name: {"anyOf": [keys, {"type": "null"}]} for name, keys in _components(definitions, kind)}
    return {
        "type": ["object", "string"],
        "properties": own,
        "patternProperties": {":": {"type": ["object", "null"]}},
        "additionalProperties": False,
    }


def _components(definitions: Schema, kind: str) -> Iterator[tuple[str, Schema]]:
    for name in table(kind):
        component = resolve(kind, name)
        keys = keys_of(component).model_json_schema(by_alias=True)
        definitions |= keys.pop("$defs", {})
        described = first_line(component)
        yield name, {**keys, "title": name, "description": described, "properties": keys.get("properties", {})}


def find_components(listed: str | None, name: str | None = None) -> Iterator[dict[str, str]]:
    """Yield the kinds that a config can name, the names of a kind, or the keys of a component, built-in or custom.

    The keys of a method with a replay memory include those of the block `memory`, with their whole names.

    Args:
        listed: the kind, as `raysim list` calls it; None yields all kinds.
        name: the component's name.

    Raises:
        ConfigError: there is no such kind, or no such name.
    """
    kinds = _kinds()
    if listed is None:
        yield from ({"kind": kind, "description": KINDS[kinds[kind]].about} for kind in kinds)
        return
    if listed not in kinds:
        meant = [f"raysim list {kind} {listed}" for kind, named in kinds.items() if listed in table(named)]
        raise ConfigError(f"raysim list: {describe_unknown('kind', listed, kinds, meant=meant)}")
    kind = kinds[listed]
    if name is None:
        for group, names in groups(kind).items():
            of = {"group": group} if group else {}
            yield from ({"name": known, "description": first_line(resolve(kind, known))} | of for known in names)
        return
    component = resolve(kind, name)
    for key, default, allowed, words in describe_block(keys_of(component)):
        yield {"key": key, "default": default, "allowed": allowed, "description": words}
    if kind == "method" and getattr(component, "memory", None) is not None:
        for key, default, allowed, words in describe_block(MemoryConfig):
            yield {"key": f"{MEMORY}.{key}", "default": default, "allowed": allowed, "description": words}


def list_components(listed: str | None, name: str | None = None) -> Iterator[str]:
    """Yield what `find_components` finds as lines of text. Raises ConfigError, as it does."""
    found = [[*one.values()] for one in find_components(listed, name)]
    width = max([16, *(len(first) for first, *_ in found)])
    if listed is None:
        yield from (f"{kind:<{width}} {about}" for kind, about in found)
        yield "`raysim list KIND` lists the names, `raysim list KIND NAME` a name's keys."
    elif name is None:
        for group, members in groupby(found, key=lambda one: one[2:]):
            yield from (f"{heading}:" for heading in group)
            yield from (f"{'  ' * len(group)}{known:<{width}} {description}" for known, description, *_ in members)
    else:
        if about := describe_component(listed, name):
            yield f"{name:<{width}} {about}"
        if not found:
            yield f"{'keys':<{width}} none of its own"
        for key, default, allowed, words in found:
            yield f"{key:<{width}} {default:<12} {allowed}{'; ' * bool(words)}{words}"


def describe_component(listed: str, name: str) -> str:
    """Return the first line of a component's description. `listed` is its kind, as `raysim list` calls it."""
    return first_line(resolve(_kinds()[listed], name))


def _kinds() -> dict[str, str]:
    """Return the kinds by what `raysim list` calls them."""
    return {kind.listed: name for name, kind in KINDS.items() if kind.listed}


def describe_block(block: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    """Yield each key of a block with its default, its allowed values and its description."""
    for name, field in block.model_fields.items():
        key = field.alias or name
        description = " ".join((field.description or "").split())
        yield key, _default(field), KeySchema(block, name).words(), description


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED_KEY
    return to_yaml_line(to_plain(field.get_default(call_default_factory=True, validated_data={})))


def first_line(component: Callable[..., Any]) -> str:
    """Return the first line of a docstring."""
    return (component.__doc__ or "").strip().partition("\n")[0]
