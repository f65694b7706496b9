"""What short forms stand for: lr for training.optimizer.lr, model: mlp for model: {name: mlp}."""

from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from raysim.config.block import blocks_in, keys_in
from raysim.config.component import Component
from raysim.config.lookup import resolve
from raysim.config.signature import keys_of
from raysim.system.errors import ConfigError


def find_keys(block: type[BaseModel], values: Mapping[str, object], last: str) -> list[str]:
    """Return the dotted keys below a block that end so, as its values choose kinds and components."""
    return sorted({".".join(keys) for keys in _walk_keys(block, values) if keys[-1] == last and len(keys) > 1})


def spell_out_names(block: type[BaseModel], values: dict[str, object]) -> None:
    """Put blocks in the place of names alone, so that keys can be put into them."""
    for name, field in block.model_fields.items():
        for below in blocks_in(field.annotation):
            given = values.get(name)
            if isinstance(given, str) and issubclass(below, Component):
                values[name] = below.spell_out(given)
            elif isinstance(given, dict):
                spell_out_names(below, given)


def _walk_keys(block: type[BaseModel], values: Mapping[str, object]) -> Iterator[tuple[str, ...]]:
    for name, field in block.model_fields.items():
        yield (name,)
        given = values.get(name)
        for below in blocks_in(field.annotation):
            inner = given if isinstance(given, Mapping) else {}
            yield from ((name, *keys) for keys in _walk_keys(below, inner))
            if issubclass(below, Component):
                chosen = given if isinstance(given, str) else inner.get(below.decides)
                yield from ((name, key) for key in _own_keys(below, chosen))


def _own_keys(block: type[Component], chosen: object) -> list[str]:
    name = chosen if isinstance(chosen, str) else block.model_fields[block.decides].default
    try:
        return [*keys_in(keys_of(resolve(block.what, name)))] if isinstance(name, str) else []
    except ConfigError:  # said elsewhere
        return []
