"""Parts of error messages: a value as text, the allowed ones, the nearest valid name."""

import difflib
import json
import math
from collections.abc import Iterable

from raysim.system.errors import single_line

LONGEST_VALUE = 60


def show(value: object, longest: int = LONGEST_VALUE) -> str:
    """Return a value roughly as YAML writes it, in one short line."""
    return shorten(_flow(value, longest), longest)


def shorten(text: str, longest: int = 100) -> str:
    """Return text in one line, cut where it is too long for a message."""
    text = single_line(text)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _flow(value: object, room: int) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        # Python refuses to write integers of many thousand digits
        return str(value) if value.bit_length() < 1000 else f"a whole number of {value.bit_length()} bits"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else repr(value).replace("inf", ".inf").replace("nan", ".nan")
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= room else f"'{value[: room - 5]}...'"
    if isinstance(value, dict):
        items = (f"{key}: {_flow(item, room)}" for key, item in value.items())
        return "{" + _up_to(items, room) + "}"
    if isinstance(value, list | tuple):
        return "[" + _up_to((_flow(item, room) for item in value), room) + "]"
    return f"a Python {type(value).__name__}"


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


def describe_unknown(
    word: str, name: str, names: Iterable[str], of: str = "", instead: str = "", meant: str | None = None
) -> str:
    """Return a message about an unknown name.

    Args:
        word: what is named, such as "key".
        name: the unknown name.
        names: the known names.
        of: the owner of the names, with " of " in front.
        instead: further values that are allowed.
        meant: the name to suggest, if it is not the nearest of the known ones.
    """
    known = list(names)
    near = nearest(name, known) if meant is None else f"; did you mean '{meant}'?"
    listed = ", ".join(known) or "none"
    return f"unknown {word} {show(name)}{of}{near or ';'} allowed: {listed}{instead}"
