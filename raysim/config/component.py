"""Blocks that name a component: beside the keys of all components of a kind they have the named one's own."""

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
    """Annotation metadata: a key's value is a block of components' names, of this kind, each with its own keys."""

    kind: str


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
        return dict(self.model_extra or {})

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


class NamedComponent(Component):
    """A component whose block has a key for the name, and its own keys."""

    name: ComponentName


class BareComponent(NamedComponent):
    """A component that is written as its name alone, where it has no keys."""

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> Any:
        return handler(self) if self.keys() else self.name
