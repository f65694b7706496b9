"""Plain scalars by the core schema of YAML 1.2.2, section 10.3.2."""

from __future__ import annotations

import re

NULL = re.compile(r"null|Null|NULL|~|")
TRUE = re.compile(r"true|True|TRUE")
FALSE = re.compile(r"false|False|FALSE")
DECIMAL = re.compile(r"[-+]?[0-9]+")
OCTAL = re.compile(r"0o[0-7]+")
HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
INFINITY = re.compile(r"[-+]?\.(?:inf|Inf|INF)")
NOT_A_NUMBER = re.compile(r"\.(?:nan|NaN|NAN)")

LONGEST_NUMBER = 400  # characters: more than any float or seed needs, less than Python's own limit for int()

Scalar = None | bool | int | float | str


def plain_scalar(text: str) -> Scalar:
    """Return the value of an unquoted scalar; ValueError where it is a number of absurd length."""
    if NULL.fullmatch(text):
        return None
    if TRUE.fullmatch(text):
        return True
    if FALSE.fullmatch(text):
        return False
    return _number(text)


def _number(text: str) -> int | float | str:
    for pattern, base in ((DECIMAL, 10), (OCTAL, 8), (HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            return int(_of_sane_length(text), base)
    if FLOAT.fullmatch(text):
        return float(_of_sane_length(text))
    if INFINITY.fullmatch(text):
        return float("-inf") if text.startswith("-") else float("inf")
    if NOT_A_NUMBER.fullmatch(text):
        return float("nan")
    return text


def _of_sane_length(text: str) -> str:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters; at most {LONGEST_NUMBER} are read")
    return text
