"""What pydantic found wrong in a file that no user wrote by hand, in a few words."""

from __future__ import annotations

from pydantic import ValidationError


def first_problem(error: ValidationError) -> str:
    """Return where the first error is, in dotted keys, and what it is."""
    first = error.errors(include_url=False)[0]
    keys = ".".join(str(key) for key in first["loc"])
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"{keys}: {message}" if keys else message
