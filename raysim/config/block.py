"""One block of the config: a frozen pydantic model, and a text of the values that each of its keys allows.

The text comes from the key's JSON Schema: {type: integer, minimum: 1} is "a whole number >= 1".
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from raysim.config.document import Mistake
from raysim.config.error_text import either

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
WholeNumber = Annotated[int, Field(ge=0)]

Schema = dict[str, Any]

PYTHON_OBJECT = {"type": "a Python object"}  # in the place of a type that JSON does not have
TYPES = {"boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "a string"}
PLURALS = (("a whole number", "whole numbers"), ("a number", "numbers"), ("a string", "strings"))
BOUNDS = {"exclusiveMinimum": ">", "minimum": ">=", "exclusiveMaximum": "<", "maximum": "<="}
LENGTHS = {"minItems": "at least", "maxItems": "at most"}


@dataclass(frozen=True)
class Allowed:
    """Annotation metadata: a text of the values that a key allows, to replace the one from its type."""

    words: str


def _unwrap_descriptions(schema: Schema) -> None:
    for key in schema.get("properties", {}).values():
        if "description" in key:
            key["description"] = " ".join(key["description"].split())


class Block(BaseModel):
    """A frozen block without unknown keys and silent conversions: neither true nor "1" is a number.

    The docstring below a key is its description in the reference and in editors.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        validate_default=True,
        use_attribute_docstrings=True,
        json_schema_extra=_unwrap_descriptions,
    )

    alternatives: ClassVar[Mapping[tuple[str, str], str]] = {}
    """Pairs of keys, each with an example. Exactly one key of a pair has a value."""

    @classmethod
    def spell_out(cls, value: object) -> object:
        """Return the block for a short form, such as a name; other values are unchanged."""
        return value

    @model_validator(mode="before")
    @classmethod
    def _spell_out(cls, value: object) -> object:
        value = cls.spell_out(value)
        if not isinstance(value, Mapping):
            return value
        return {first: None for first, second in cls.alternatives if value.get(second) is not None} | dict(value)

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistakes between the block's own keys."""
        for (first, second), example in self.alternatives.items():
            one, other = getattr(self, first) is not None, getattr(self, second) is not None
            if one == other:
                words = f"found {'both' if one else 'neither'} {first} {'and' if one else 'nor'} {second}"
                yield Mistake((second,), f"{words}, allowed: one of the two, as in {example}")
                return


def assume(key: str, choice: str) -> BeforeValidator:
    """Return a validator that adds `key: choice` to a block without this key."""
    return BeforeValidator(lambda value: {key: choice, **value} if isinstance(value, dict) else value)


@functools.cache
def keys_in(block: type[BaseModel]) -> Mapping[str, str]:
    """Return the field names of a block by their YAML keys."""
    return {field.alias or name: name for name, field in block.model_fields.items()}


def blocks_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the blocks in an annotation, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from blocks_in(part)


class KeySchema:
    """The JSON Schema of one key of a block."""

    def __init__(self, block: type[BaseModel], name: str) -> None:
        field = block.model_fields[name]
        whole = _build_schema(block)
        self._definitions: Schema = whole.get("$defs", {})
        self._schema: Schema = whole["properties"][field.alias or name]
        self._own = next((item.words for item in field.metadata if isinstance(item, Allowed)), None)

    def words(self) -> str:
        """Return a text of the values that the key allows."""
        if self._own is None and "discriminator" in self._schema:
            key = self._schema["discriminator"]["propertyName"]
            return f"a block with {key}: {either(self.choices())}, and the keys that this has"
        return self._own or self._words(self._schema)

    def selector(self) -> str:
        """Return the key that selects one of several blocks, such as kind, or "" if there is none."""
        unions = [self._schema, *self._schema.get("anyOf", [])]  # a block or null is a union in a union
        return next((str(union["discriminator"]["propertyName"]) for union in unions if "discriminator" in union), "")

    def choices(self) -> list[str]:
        """Return the values of the selector."""
        blocks = [option["properties"] for option in self._options(self._schema) if "properties" in option]
        return [keys[self.selector()]["const"] for keys in blocks]

    def example(self, choice: str) -> str:
        """Return a block of this choice as it is typed, with the keys that it requires: {kind: ..., tasks: 5}."""
        chosen = self.selector()
        options = (option for option in self._options(self._schema) if "properties" in option)
        block = next(option for option in options if option["properties"][chosen]["const"] == choice)
        required = [key for key in block.get("required", ()) if key != chosen]
        examples = {key: block["properties"][key].get("examples", ["..."])[0] for key in required}
        return "{" + ", ".join(f"{key}: {value}" for key, value in {chosen: choice, **examples}.items()) + "}"

    def names(self) -> list[str]:
        """Return the strings that the key or its items may be, to suggest one for a misspelled string."""
        return [name for name in self._literals(self._schema) if isinstance(name, str)]

    def _options(self, schema: Schema) -> list[Schema]:
        """Return the schemas of a union, or the one schema, with references resolved."""
        if "$ref" in schema:
            return [self._definitions[schema["$ref"].rpartition("/")[2]]]
        options = schema.get("anyOf") or schema.get("oneOf")
        return [found for option in options for found in self._options(option)] if options else [schema]

    def _literals(self, schema: Schema) -> Iterator[object]:
        for option in self._options(schema):
            yield from [option["const"]] if "const" in option else option.get("enum", [])
            for item in option.get("prefixItems") or filter(None, [option.get("items")]):
                yield from self._literals(item)

    def _words(self, schema: Schema) -> str:
        return either(dict.fromkeys(words for option in self._options(schema) for words in self._words_of_one(option)))

    def _words_of_one(self, schema: Schema) -> list[str]:
        match schema:
            case {"const": _} | {"enum": _}:
                return ["null" if value is None else str(value) for value in self._literals(schema)]
            case {"prefixItems": items}:
                each = list(dict.fromkeys(self._words(item) for item in items))
                return [f"a list of {len(items)}: {', '.join(each) if len(each) > 1 else 'each ' + each[0]}"]
            case {"type": "array", **rest}:
                bounds = [f", {words} {schema[key]}" for key, words in LENGTHS.items() if key in schema]
                return ["a list of " + self._items(rest.get("items") or {}) + "".join(bounds)]
            case {"properties": keys, "additionalProperties": True}:  # a component's, which has keys of its own
                return [f"a name, or a block with the keys {', '.join(keys)} and its own"]
            case {"properties": keys}:
                return [f"a block with the keys {', '.join(keys)}"]
            case {"type": "object"}:
                return ["a block of keys"]
            case {"format": "path"}:
                return ["a path"]
            case {"type": kind}:
                bounds = [f"{sign} {schema[key]}" for key, sign in BOUNDS.items() if key in schema]
                return [" ".join([TYPES.get(str(kind), str(kind)), " and ".join(bounds)]).strip()]
        return ["any value"]

    def _items(self, schema: Schema) -> str:
        words = self._words(schema) if schema else "values"
        return next((many + words.removeprefix(one) for one, many in PLURALS if words.startswith(one)), words)


class _OfAnyType(GenerateJsonSchema):
    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        if kind != "non-serializable-default":  # a default that JSON lacks is a Python object too
            super().emit_warning(kind, detail)

    def handle_invalid_for_json_schema(self, schema: object, error_info: str) -> Schema:
        return PYTHON_OBJECT


@functools.lru_cache(maxsize=256)
def _build_schema(block: type[BaseModel]) -> Schema:
    return block.model_json_schema(schema_generator=_OfAnyType)
