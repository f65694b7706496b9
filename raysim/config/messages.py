"""A refused config in one line: where, the dotted key, what was found, what is allowed, the nearest valid name."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from raysim.config.document import Document, Elsewhere, Given, Keys, Origin, dotted
from raysim.system.errors import ConfigError, single_line

EXPLAINED = "explained"  # the pydantic error type of an error whose words were chosen where its block is known

LONGEST_VALUE = 60


def show(value: object, longest: int = LONGEST_VALUE) -> str:
    """Return a value roughly as YAML writes it, in one short line."""
    text = single_line(_flow(value, longest))
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _flow(value: object, room: int) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        # Python refuses to write integers of many thousand digits
        return str(value) if value.bit_length() < 1000 else f"a whole number of {value.bit_length()} bits"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= room else f"'{value[: room - 5]}...'"
    if isinstance(value, dict):
        items = (f"{key}: {_flow(item, room)}" for key, item in value.items())
        return "{" + _up_to(items, room) + "}"
    if isinstance(value, list | tuple):
        return "[" + _up_to((_flow(item, room) for item in value), room) + "]"
    return f"a Python {type(value).__name__}"


def _float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return repr(value)


def _up_to(items: Iterable[str], room: int) -> str:
    text = ""
    for item in items:
        text += (", " if text else "") + item
        if len(text) > room:
            break
    return text


def nearest(name: object, names: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest of the names, or nothing where none is near."""
    known = list(names)
    if not isinstance(name, str) or name in known:
        return ""
    near = difflib.get_close_matches(name[:200].lower(), known, n=1, cutoff=0.6)
    starts = [other for other in known if len(name) >= 3 and other.startswith(name.lower())]
    found = near or starts
    return f"; did you mean '{found[0]}'?" if found else ""


def either(names: Iterable[str]) -> str:
    """Return "a, b or c"."""
    listed = list(names)
    return listed[0] if len(listed) == 1 else ", ".join(listed[:-1]) + " or " + listed[-1]


def unknown(word: str, name: str, names: Iterable[str], of: str = "", instead: str = "") -> str:
    """Return the words for a name that is not among the known ones; `of` is what the names belong to."""
    known = list(names)
    near = nearest(name, known)
    listed = ", ".join(known) or "none"
    return f"unknown {word} {show(name)}{of}{near or ';'} allowed: {listed}{instead}"


@dataclass(frozen=True)
class _Problem:
    keys: Keys
    words: str
    missing: bool


def refusal(error: ValidationError, document: Document) -> ConfigError:
    """Return the first of pydantic's errors, by the order of the file, as one line."""
    problems = [_problem(line) for line in error.errors(include_url=False)]
    first = min(problems, key=lambda problem: _position(problem, document))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return ConfigError(located(document, first.keys, first.words, first.missing) + more)


def located(document: Document, keys: Keys, words: str, missing: bool = False) -> str:
    """Return words about a key after where it was given: FILE:LINE and the key, or the KEY=VALUE."""
    origin = _origin(document, keys, missing)
    key = f"{dotted(keys)}: " if keys else ""
    if isinstance(origin, Given):
        return f"{origin}: {'' if origin.keys == keys else key}{words}"
    if isinstance(origin, Elsewhere):
        return f"{origin}: {key}{words}"
    if document.file is None:
        return f"{key}{words}"
    return f"{document.file}{'' if origin is None else f':{origin}'}: {key}{words}"


def _problem(line: object) -> _Problem:
    assert isinstance(line, dict)
    context = line.get("ctx", {})
    if line["type"] == EXPLAINED:
        return _Problem(line["loc"], context["words"], context["missing"])
    return _Problem(line["loc"], f"found {show(line['input'])}: {line['msg']}", False)


def _origin(document: Document, keys: Keys, missing: bool) -> Origin | None:
    if not missing:
        return document.origin(keys)
    around = keys[:-1]
    origin = document.origin(around)
    # a block that exists only because a key inside it was given is not where the missing key belongs
    return None if isinstance(origin, Given) and len(origin.keys) > len(around) else origin


def _position(problem: _Problem, document: Document) -> tuple[int, int]:
    """Order by line, then by KEY=VALUE, then what is missing: a misspelt key explains one that is missing."""
    origin = _origin(document, problem.keys, problem.missing)
    if problem.missing:
        return 2, 0
    if isinstance(origin, Given):
        return 1, origin.order
    return 0, origin.line if isinstance(origin, Elsewhere) else origin or 0
