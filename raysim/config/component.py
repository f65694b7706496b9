"""Blocks that name a component. They have the keys of every component of the kind, and those of the named one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from raysim.config.block import Allowed, Block
from raysim.config.lookup import resolve

Values = dict[str, object]
ComponentName = Annotated[
    str,
    Allowed("a name that raysim knows, or your own as package.module:name"),
    Field(description="A name from the list that raysim prints, or your own as package.module:name."),
]


@dataclass(frozen=True)
class ByName:
    """Annotation metadata: the key's value is a block with names of components of this kind, each with its keys."""

    kind: str


class Component(Block):
    """A block with a component's name and keys. The name alone is a short form.

    `what` is the kind of component. `decides` is the key of the name.
    """

    model_config = ConfigDict(extra="allow")

    what: ClassVar[str]
    decides: ClassVar[str] = "name"

    @property
    def named(self) -> str:
        """The name."""
        return str(getattr(self, self.decides))

    def keys(self) -> Values:
        """Return the component's keys with all defaults, to call it with."""
        return dict(self.model_extra or {})

    @property
    def title(self) -> str:
        """Its title in reports: its name and the keys that are text, such as npz usps.npz."""
        return " ".join([self.named, *(value for value in self.keys().values() if isinstance(value, str))])

    def function(self) -> Callable[..., Any]:
        """Return the component."""
        return resolve(self.what, self.named)

    def with_keys(self) -> Callable[..., Any]:
        """Return the component with its keys bound."""
        return functools.partial(self.function(), **self.keys())

    def make(self) -> Any:
        """Return a new object: what the component returns for its keys."""
        return self.with_keys()()

    @classmethod
    def spell_out(cls, value: object) -> object:
        """Return the block for a name; other values are unchanged."""
        return {cls.decides: value} if isinstance(value, str) else value


class NamedComponent(Component):
    """A component with its name in the key `name` of its block."""

    name: ComponentName


class BareComponent(NamedComponent):
    """A component that is written as its name if it has no keys."""

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> Any:
        return handler(self) if self.keys() else self.name
