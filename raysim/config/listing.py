"""What a config can name and which keys that has, in words: for `raysim list` and for the reference."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from raysim.config.document import to_plain
from raysim.config.error_text import describe_unknown
from raysim.config.key_schema import KeySchema
from raysim.config.lookup import KINDS, resolve, table
from raysim.config.signature import describe_keys, keys_of
from raysim.config.yaml_writing import to_yaml_line
from raysim.system.errors import ConfigError

REQUIRED_KEY = "required"  # in the place of a default


def find_kind(listed: str) -> str:
    """Return the kind that `raysim list` calls so. Raises ConfigError."""
    kinds = {kind.listed: name for name, kind in KINDS.items() if kind.listed}
    if listed not in kinds:
        raise ConfigError(f"raysim list: {describe_unknown('kind', listed, kinds)}")
    return kinds[listed]


def list_names(kind: str) -> Iterator[tuple[str, str]]:
    """Yield the names of a kind, each with what it is."""
    for name in table(kind):
        yield name, first_line(resolve(kind, name))


def list_keys(kind: str, name: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield the keys of a component, one of raysim's or the user's own: key, default, what it allows, what it is."""
    component = resolve(kind, name)
    yield from describe_block(keys_of(component), describe_keys(component))


def describe_block(block: type[BaseModel], described: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Yield each key of a block, its default, what it allows and what it is."""
    for name, field in block.model_fields.items():
        key = field.alias or name
        description = " ".join((field.description or described.get(key, "")).split())
        yield key, _default(field), KeySchema(block, name).words(), description


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED_KEY
    return to_yaml_line(to_plain(field.get_default(call_default_factory=True, validated_data={})))


def first_line(component: Callable[..., Any]) -> str:
    """Return the first line of a docstring."""
    return (component.__doc__ or "").strip().partition("\n")[0]
