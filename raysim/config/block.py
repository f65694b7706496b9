"""One block of the config: a frozen pydantic model whose errors are worded where the block is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from raysim.config.allowed import Allowed, choices, keys_in, literals, options, words_of
from raysim.config.document import Keys
from raysim.config.messages import EXPLAINED, either, nearest, show, unknown

REQUIRED = "this key is required and missing"


def explained(keys: Keys, words: str, value: object = None, missing: bool = False) -> InitErrorDetails:
    """Return an error with its final words, for pydantic to carry to the top."""
    context = {"words": words, "missing": missing}
    return InitErrorDetails(type=PydanticCustomError(EXPLAINED, "{words}", context), loc=keys, input=value)


def refused(title: str, errors: Iterable[InitErrorDetails]) -> ValidationError:
    """Return the errors as an exception that validators may raise: pydantic adds where they are."""
    return ValidationError.from_exception_data(title, list(errors))


class Block(BaseModel):
    """A block: frozen, no unknown keys, no silent conversions (true is no number, "1" is no number, 1 is one)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        validate_default=True,
    )

    chosen_by: ClassVar[str | None] = None  # the key that decides which block this is, where there are several

    @classmethod
    def complete(cls, values: dict[str, object]) -> tuple[dict[str, object], list[InitErrorDetails]]:
        """Return the values with what the block adds to them, and the errors found on the way."""
        return values, []

    @model_validator(mode="wrap")
    @classmethod
    def _worded(cls, value: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(value, Mapping):
            return handler(value)
        values, errors = cls.complete(dict(value))
        try:
            made = handler(values)
        except ValidationError as error:
            errors = [*_explain(cls, values, error), *errors]
        if errors:
            raise refused(cls.__name__, errors)
        return made


def _explain(block: type[Block], values: dict[str, object], error: ValidationError) -> list[InitErrorDetails]:
    by_key: dict[Keys, list[ErrorDetails]] = {}
    for line in error.errors(include_url=False):
        by_key.setdefault(line["loc"][:1], []).append(line)
    fields = {field.alias or name: field for name, field in block.model_fields.items()}
    found: list[InitErrorDetails] = []
    for keys, lines in by_key.items():
        field = fields.get(str(keys[0])) if keys else None
        if field is None:
            found += [_of_block(block, values, line) for line in lines]
        else:
            found += _of_field(field, keys, values.get(str(keys[0])), lines)
    return found


def _of_block(block: type[Block], values: dict[str, object], line: ErrorDetails) -> InitErrorDetails:
    """Word an error of the block as a whole or of a key that it does not have."""
    if line["type"] == EXPLAINED:
        return _carried(line["loc"], line)
    if line["type"] == "extra_forbidden":
        return unknown_key(line["loc"], keys_in(block), line["input"], _chosen(block, values))
    return explained(line["loc"], f"found {show(line['input'])}: {line['msg']}", line["input"])


def unknown_key(keys: Keys, known: Iterable[str], value: object, of: str = "") -> InitErrorDetails:
    """Return the error for a key that its block does not have."""
    return explained(keys, unknown("key", str(keys[-1]), known, of), value)


def _chosen(block: type[Block], values: dict[str, object]) -> str:
    return f" of {values.get(block.chosen_by)}" if block.chosen_by else ""


def _of_field(field: FieldInfo, keys: Keys, value: object, lines: list[ErrorDetails]) -> list[InitErrorDetails]:
    """Word the errors of one key: those of the blocks below it have words already, all others become one."""
    below = [line for line in lines if line["type"] == EXPLAINED]
    if below:
        # pydantic puts the name of a union's option between the key and what lies below it
        tagged = sum(option is not type(None) for option in options(field.annotation)) > 1
        return [_carried(keys + line["loc"][2 if tagged and len(line["loc"]) > 1 else 1 :], line) for line in below]
    allowed = words_of(field)
    if lines[0]["type"] == "missing" and len(lines[0]["loc"]) == 1:
        return [explained(keys, f"{REQUIRED}, allowed: {allowed}", missing=True)]
    reason = lines[0].get("ctx", {}).get("error")
    if isinstance(reason, Exception) and not any(isinstance(item, Allowed) for item in field.metadata):
        return [explained(keys, f"found {show(value)}: {reason}", value)]
    if field.discriminator and isinstance(value, Mapping):
        return [_unchosen(field, keys, value)]
    named = value if isinstance(value, list | tuple) else [value]
    near = next(filter(None, (nearest(name, literals(field.annotation)) for name in named)), "")
    return [explained(keys, f"found {show(value)}, allowed: {allowed}{near}", value)]


def _unchosen(field: FieldInfo, keys: Keys, value: Mapping[str, object]) -> InitErrorDetails:
    """Word the error of a block whose deciding key, such as kind, is missing or wrong."""
    key, names = str(field.discriminator), choices(field)
    allowed = f"allowed: {either(names)}"
    if key not in value:
        return explained((*keys, key), f"{REQUIRED}, {allowed}", missing=True)
    words = f"found {show(value[key])}, {allowed}{nearest(value[key], names)}"
    return explained((*keys, key), words, value[key])


def _carried(keys: Keys, line: ErrorDetails) -> InitErrorDetails:
    context = line.get("ctx", {})
    return explained(keys, context["words"], line["input"], context["missing"])


def assume(key: str, choice: str) -> BeforeValidator:
    """Return a validator that lets a block without the key that chooses its kind mean the default kind."""
    return BeforeValidator(lambda value: {key: choice, **value} if isinstance(value, dict) else value)


def only_one(block: Block, first: str, second: str, example: str) -> None:
    """Refuse a block in which not exactly one of two keys has a value."""
    given = [key for key in (first, second) if getattr(block, key) is not None]
    if len(given) != 1:
        words = f"found {'both ' if given else 'neither '}{first} {'and' if given else 'nor'} {second}"
        allowed = f"allowed: one of the two, as in {example}"
        raise refused(type(block).__name__, [explained((second,), f"{words}, {allowed}")])
