"""Errors with words of the config's own: how they pass through pydantic, and the one line that they become."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from raysim.config.document import Document, Elsewhere, Given, Keys
from raysim.config.error_text import show
from raysim.system.errors import ConfigError

EXPLAINED = "explained"  # the pydantic error type of an error whose words were chosen where its block is known
REQUIRED = "this key is required and missing"


def explain(keys: Keys, words: str, missing: bool = False) -> InitErrorDetails:
    """Return an error with its final words, for pydantic to carry to the top."""
    context = {"words": words, "missing": missing}
    return InitErrorDetails(type=PydanticCustomError(EXPLAINED, "{words}", context), loc=keys, input=None)


def validation_error(*errors: InitErrorDetails) -> ValidationError:
    """Return the errors as an exception that validators may raise: pydantic adds where they are."""
    return ValidationError.from_exception_data("config", list(errors))


def to_config_error(error: ValidationError, document: Document) -> ConfigError:
    """Return the first of pydantic's errors, by the order of the file, as one line."""
    lines = error.errors(include_url=False)
    first = min(lines, key=lambda line: _position(line, document))
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    words = f"found {show(first['input'])}: {first['msg']}" if first["type"] != EXPLAINED else first["msg"]
    return ConfigError(document.locate(first["loc"], words, _is_missing(first)) + more)


def _is_missing(line: ErrorDetails) -> bool:
    return bool(line.get("ctx", {}).get("missing"))


def _position(line: ErrorDetails, document: Document) -> tuple[int, int]:
    """Order by line, then by KEY=VALUE, then what is missing: a misspelt key explains one that is missing."""
    if _is_missing(line):
        return 2, 0
    origin = document.origin(line["loc"])
    if isinstance(origin, Given):
        return 1, origin.order
    return 0, origin.line if isinstance(origin, Elsewhere) else origin or 0
