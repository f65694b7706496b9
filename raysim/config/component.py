"""Blocks that name a component: beside the keys of all components of a kind they have the named one's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer
from pydantic_core import InitErrorDetails

from raysim.config.block import Block, explain_unknown_key
from raysim.config.document import Keys, explain
from raysim.config.error_text import show
from raysim.config.key_schema import Allowed, keys_in
from raysim.config.lookup import resolve
from raysim.config.signature import keys_of, own_values
from raysim.system.errors import ConfigError

Values = dict[str, object]
Errors = list[InitErrorDetails]
ComponentName = Annotated[str, Allowed("a name that raysim knows, or your own as package.module:name")]


def validate_own_keys(kind: str, name: str, given: Values, at: Keys, beside: list[str]) -> tuple[Values, Errors]:
    """Return a component's own keys with every default spelled out; `at` is the key that named it."""
    try:
        keys = keys_of(resolve(kind, name))
    except ConfigError as error:
        return {}, [explain(at, str(error))]
    known = keys_in(keys)
    taken = [key for key in known if key in beside]
    if taken:
        words = f"{kind} {show(name)} has a keyword-only parameter '{taken[0]}', which is a key of every {kind}"
        return {}, [explain(at, words)]
    errors = [explain_unknown_key((key,), [*beside, *known], f" of {show(name)}") for key in given if key not in known]
    try:
        made = keys.model_validate({key: value for key, value in given.items() if key in known})
    except ValidationError as error:
        return {}, [*errors, *(explain(line["loc"], **line["ctx"]) for line in error.errors())]
    return own_values(made), errors


class Component(Block):
    """A block that names a component and has its own keys; where it needs none, the name alone stands for the block.

    `what` is the kind of component, `decides` the key that has the name.
    """

    model_config = ConfigDict(extra="allow")

    what: ClassVar[str]
    decides: ClassVar[str] = "name"

    @property
    def named(self) -> str:
        """The name."""
        return str(getattr(self, self.decides))

    def keys(self) -> Values:
        """Return the named component's own keys, every default spelled out: call the component with them."""
        return dict(self.__pydantic_extra__ or {})

    @property
    def title(self) -> str:
        """What reports call it: its name and what of its own keys is text, such as npz usps.npz."""
        return " ".join([self.named, *(value for value in self.keys().values() if isinstance(value, str))])

    def function(self) -> Callable[..., Any]:
        """Return what the name stands for."""
        return resolve(self.what, self.named)

    def with_keys(self) -> Callable[..., Any]:
        """Return what the name stands for, to be called with what is not a key."""
        return functools.partial(self.function(), **self.keys())

    @classmethod
    def spell_out(cls, value: object) -> object:
        """Return the block that a name alone stands for, and anything else as it is."""
        return {cls.decides: value} if isinstance(value, str) else value

    @classmethod
    def complete(cls, values: Values) -> tuple[Values, Errors]:
        """Return the values with the component's own keys validated and completed."""
        fields = {key: value for key, value in values.items() if key in cls.model_fields}
        own = {key: value for key, value in values.items() if key not in cls.model_fields}
        name = fields.get(cls.decides, cls.model_fields[cls.decides].default)
        if not isinstance(name, str):
            return fields, []
        made, errors = validate_own_keys(cls.what, name, own, (cls.decides,), list(cls.model_fields))
        return {**fields, **made}, errors


class NamedComponent(Component):
    """A component whose block has a key for the name, and its own keys."""

    name: ComponentName
    """A name from the list that raysim prints, or your own as package.module:name."""


class BareComponent(NamedComponent):
    """A component that is written as its name alone, where it has no keys."""

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> Any:
        return handler(self) if self.keys() else self.name
