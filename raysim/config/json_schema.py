"""The JSON Schema of the config, with the keys of every named component, for editors and for the reference."""

from collections.abc import Iterator

from raysim.config.key_schema import Schema
from raysim.config.lookup import resolve, table
from raysim.config.schema import Config
from raysim.config.signature import describe_keys, keys_of

ALLOWED_OWN = {"type": "string", "pattern": ":", "description": "your own, as package.module:name"}


def build_json_schema() -> Schema:
    """Return the JSON Schema of a config: every key with its description, default and range."""
    whole = Config.model_json_schema(by_alias=True, mode="validation")
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    definitions: Schema = whole["$defs"]
    for block, kind in (("DatasetConfig", "data set"), ("Domain", "data set"), ("Model", "model")):
        _complete_named(definitions, block, kind)
    bare = [name for name, own in _components(definitions, "data set") if not own.get("required")]
    domains = definitions["Domains"]["properties"]["domains"]
    domains["items"] = {"anyOf": [{"enum": bare}, ALLOWED_OWN, domains["items"]]}
    for block in (whole, *definitions.values()):
        for value in block.get("properties", {}).values():
            _require_choice(definitions, value)
    whole["properties"]["methods"] |= _methods(definitions)
    return whole


def _require_choice(definitions: Schema, value: Schema) -> None:
    """Require the deciding key (kind, name) of all options but the default, so that exactly one option ever fits."""
    decides = value.get("discriminator", {"mapping": {}})
    for name, reference in decides["mapping"].items():
        key = decides["propertyName"]
        if name != value.get("default", {}).get(key):
            option = definitions[reference.rpartition("/")[2]]
            option["required"] = sorted({key, *option.get("required", [])})


def _complete_named(definitions: Schema, block: str, kind: str) -> None:
    """Let the name in a block decide which other keys it has."""
    found: Schema = definitions[block]
    common = found["properties"]
    found["properties"]["name"] |= {"anyOf": [{"enum": list(table(kind))}, ALLOWED_OWN]}
    found["allOf"] = [
        {
            "if": {"properties": {"name": {"const": name}}},
            "then": {
                "properties": {**dict.fromkeys(common, True), **own["properties"]},
                "required": own.get("required", []),
                "additionalProperties": False,
            },
        }
        for name, own in _components(definitions, kind)
    ]


def _methods(definitions: Schema) -> Schema:
    own: Schema = {name: {"anyOf": [keys, {"type": "null"}]} for name, keys in _components(definitions, "method")}
    own["fedavg"] = {"type": ["object", "null"], "maxProperties": 0}  # what runs without methods
    return {"properties": own, "patternProperties": {":": {"type": ["object", "null"]}}, "additionalProperties": False}


def _components(definitions: Schema, kind: str) -> Iterator[tuple[str, Schema]]:
    for name in table(kind):
        component = resolve(kind, name)
        keys = keys_of(component).model_json_schema(by_alias=True)
        definitions |= keys.pop("$defs", {})
        for key, text in describe_keys(component).items():
            keys.get("properties", {}).get(key, {}).setdefault("description", text)
        first_line = (component.__doc__ or "").strip().partition("\n")[0]
        yield name, {**keys, "title": name, "description": first_line, "properties": keys.get("properties", {})}
