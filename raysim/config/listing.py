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


def list_components(listed: str, name: str | None = None) -> Iterator[str]:
    """Yield a line for each name of a kind, as `raysim list` calls it, or for each key of one, raysim's or one's own.

    Raises:
        ConfigError: there is no such kind, or no such name.
    """
    kinds = {kind.listed: name for name, kind in KINDS.items() if kind.listed}
    if listed not in kinds:
        raise ConfigError(f"raysim list: {describe_unknown('kind', listed, kinds)}")
    kind = kinds[listed]
    if name is None:
        width = max(16, *map(len, table(kind)))
        for known in table(kind):
            yield f"{known:<{width}} {first_line(resolve(kind, known))}"
        return
    component = resolve(kind, name)
    keys = list(describe_block(keys_of(component), describe_keys(component)))
    width = max([16, *(len(key) for key, *_ in keys)])
    for key, default, allowed, words in keys:
        yield f"{key:<{width}} {default:<12} {allowed}{'; ' * bool(words)}{words}"
    if not keys:
        yield "no keys"


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
