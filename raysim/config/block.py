"""One block of the config: a frozen pydantic model whose errors are worded where the block is known."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails

from raysim.config.document import EXPLAINED, REQUIRED, Keys, explain, validation_error
from raysim.config.error_text import describe_unknown, either, nearest, show
from raysim.config.key_schema import Allowed, KeySchema, Schema, keys_in

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
WholeNumber = Annotated[int, Field(ge=0)]


def _unwrap_descriptions(schema: Schema) -> None:
    for key in schema.get("properties", {}).values():
        if "description" in key:
            key["description"] = " ".join(key["description"].split())


class Block(BaseModel):
    """A block: frozen, no unknown keys, no silent conversions (true is no number, "1" is no number, 1 is one).

    The docstring below a key is its description, in the reference and for editors.
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

    OWN_KEYS: ClassVar = {"own keys": True}  # a context of validation: components are not imported to complete a block

    alternatives: ClassVar[Mapping[tuple[str, str], str]] = {}  # pairs of keys: one of them, and an example

    @classmethod
    def complete(cls, values: dict[str, object]) -> tuple[dict[str, object], list[InitErrorDetails]]:
        """Return the values with what the block adds to them, and the errors found on the way."""
        return values, []

    @classmethod
    def spell_out(cls, value: object) -> object:
        """Return the block that a value stands for which is shorter, and anything else as it is."""
        return value

    @classmethod
    def elsewhere(cls, key: str, values: Mapping[str, object]) -> str | None:
        """Return the key further down that is meant by one that the block does not have, if that is known."""
        return None

    @model_validator(mode="wrap")
    @classmethod
    def _explain_errors(cls, value: object, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        written, value = value, cls.spell_out(value)
        if not isinstance(value, Mapping):
            return handler(value)
        values, errors = (dict(value), []) if info.context == cls.OWN_KEYS else cls.complete(dict(value))
        for first, second in cls.alternatives:
            if values.get(second) is not None:
                values.setdefault(first, None)
        try:
            made = handler(values)
        except ValidationError as error:
            errors = [*_explain_block(cls, values, error), *errors]
        else:
            errors += [*made._explain_alternatives()][:1]
        if written is not value:  # it has no key of its own
            errors = [InitErrorDetails(**{**e, "loc": ()}) if e.get("loc") == (*value,) else e for e in errors]
        if errors:
            raise validation_error(*errors)
        return made

    def _explain_alternatives(self) -> Iterator[InitErrorDetails]:
        """Yield an error for every pair of alternatives of which not exactly one has a value."""
        for (first, second), example in self.alternatives.items():
            one, other = getattr(self, first) is not None, getattr(self, second) is not None
            if one == other:
                words = f"found {'both' if one else 'neither'} {first} {'and' if one else 'nor'} {second}"
                yield explain((second,), f"{words}, allowed: one of the two, as in {example}")


def _explain_block(block: type[Block], values: dict[str, object], error: ValidationError) -> list[InitErrorDetails]:
    by_key: dict[Keys, list[ErrorDetails]] = {}
    for line in error.errors(include_url=False):
        by_key.setdefault(line["loc"][:1], []).append(line)
    names = {field.alias or name: name for name, field in block.model_fields.items()}
    found: list[InitErrorDetails] = []
    for keys, lines in by_key.items():
        key = str(keys[0]) if keys else ""
        if key in names:
            found += _explain_key(block, names[key], values.get(key), lines)
        else:
            found += [_explain_whole(block, values, line) for line in lines]
    return found


def _explain_whole(block: type[Block], values: dict[str, object], line: ErrorDetails) -> InitErrorDetails:
    """Word an error of the block as a whole or of a key that it does not have."""
    if line["type"] == EXPLAINED:
        return explain(line["loc"], **line["ctx"])
    if line["type"] == "extra_forbidden":
        # the key that decides which of several blocks this is allows one name only
        types = {name: field.annotation for name, field in block.model_fields.items()}
        decides = [name for name, kind in types.items() if get_origin(kind) is Literal and len(get_args(kind)) == 1]
        of = "".join(f" of {values.get(name)}" for name in decides)
        return explain_unknown_key(line["loc"], keys_in(block), of, block.elsewhere(str(line["loc"][-1]), values))
    return explain(line["loc"], f"found {show(line['input'])}: {line['msg']}")


def explain_unknown_key(keys: Keys, known: Iterable[str], of: str = "", meant: str | None = None) -> InitErrorDetails:
    """Return the error for a key that its block does not have; `meant` is the key that it is elsewhere."""
    return explain(keys, describe_unknown("key", str(keys[-1]), known, of, meant=meant))


def _explain_key(block: type[Block], name: str, value: object, lines: list[ErrorDetails]) -> list[InitErrorDetails]:
    """Word the errors of one key: those of the blocks below it have words already, all others become one."""
    field, schema = block.model_fields[name], KeySchema(block, name)
    keys: Keys = (field.alias or name,)
    below = [line for line in lines if line["type"] == EXPLAINED]
    if below:
        # pydantic puts the name of a union's option between the key and what lies below it
        return [explain(keys + line["loc"][2 if schema.is_union else 1 :], **line["ctx"]) for line in below]
    if lines[0]["type"] == "missing" and len(lines[0]["loc"]) == 1:
        return [explain(keys, f"{REQUIRED}, allowed: {schema.words()}", missing=True)]
    reason = lines[0].get("ctx", {}).get("error")
    if isinstance(reason, Exception) and not any(isinstance(item, Allowed) for item in field.metadata):
        return [explain(keys, f"found {show(value)}: {reason}")]
    if field.discriminator and isinstance(value, Mapping):
        return [_explain_choice((*keys, str(field.discriminator)), value, schema.choices())]
    items = value if isinstance(value, list | tuple) else [value]
    near = next(filter(None, (nearest(item, schema.names()) for item in items)), "")
    return [explain(keys, f"found {show(value)}, allowed: {schema.words()}{near}")]


def _explain_choice(keys: Keys, block: Mapping[str, object], names: list[str]) -> InitErrorDetails:
    """Word the error of a block whose deciding key, such as kind, is missing or wrong."""
    allowed = f"allowed: {either(names)}"
    if keys[-1] not in block:
        return explain(keys, f"{REQUIRED}, {allowed}", missing=True)
    found = block[str(keys[-1])]
    return explain(keys, f"found {show(found)}, {allowed}{nearest(found, names)}")


def assume(key: str, choice: str) -> BeforeValidator:
    """Return a validator that lets a block without the key that chooses its kind mean the default kind."""
    return BeforeValidator(lambda value: {key: choice, **value} if isinstance(value, dict) else value)
