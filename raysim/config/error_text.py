"""Parts of error messages: a value as text, the allowed ones, the nearest valid name."""

import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from raysim.system.errors import single_line

LONGEST_VALUE = 60
DEEPEST_SHOWN = 30  # lists within lists
FEW = 12  # names that are listed even if one of them is near


def show(value: object, longest: int = LONGEST_VALUE) -> str:
    """Return a value roughly as YAML writes it, in one short line."""
    return shorten(_flow(value, longest), longest)


def shorten(text: str, longest: int = 100) -> str:
    """Return text in one line, cut where it is too long for a message."""
    text = single_line(text)
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _flow(value: object, room: int, depth: int = 0) -> str:
    if depth > DEEPEST_SHOWN:  # values may be nested deeper than Python's functions may call each other
        return "..."
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
        items = (f"{key}: {_flow(item, room, depth + 1)}" for key, item in value.items())
        return "{" + _up_to(items, room) + "}"
    if isinstance(value, list | tuple):
        return "[" + _up_to((_flow(item, room, depth + 1) for item in value), room) + "]"
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
    found = find_nearest(name, list(names))
    return f"; did you mean '{found}'?" if found else ""


def find_nearest(name: object, known: Sequence[str]) -> str | None:
    """Return the nearest of the names, or None where none is near or it is one of them."""
    if not isinstance(name, str) or name in known:
        return None
    small = {other.lower(): other for other in known}
    near = difflib.get_close_matches(name[:200].lower(), small, n=1, cutoff=0.6)
    starts = [other for other in small if len(name) >= 3 and other.startswith(name.lower())]
    return next((small[other] for other in (*near, *starts)), None)


def find_slip(name: str, known: Iterable[str]) -> str | None:
    """Return the name of which this is a slip of a letter or two, or None."""
    near = difflib.get_close_matches(name[:200].lower(), list(known), n=1, cutoff=0.87)
    return near[0] if near else None


def find_brought(name: object, table: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what a name from elsewhere means by a table of brought_names.py."""
    if not isinstance(name, str):
        return []
    return [own for own, names in table.items() if _letters(name) in map(_letters, names)]


def _letters(name: str) -> str:
    return re.sub(r"[\s_-]", "", name[:200].lower())


def either(names: Iterable[str]) -> str:
    """Return "a, b or c"."""
    listed = list(names)
    return listed[0] if len(listed) == 1 else ", ".join(listed[:-1]) + " or " + listed[-1]


def quote_meant(words: str) -> str:
    """Return a suggestion in quotation marks: "'a' or 'b' with 'c=1'" for "a or b with c=1"."""
    return re.sub("( or | with )", r"'\1'", f"'{words}'")


def describe_unknown(
    word: str,
    name: str,
    names: Iterable[str],
    of: str = "",
    instead: str = "",
    meant: Sequence[str] = (),
    all_in: str = "",
    elsewhere: Sequence[str] = (),
) -> str:
    """Return a message about an unknown name. Names are listed if none is near, or if they are few.

    Args:
        word: what is named, such as "key".
        name: the unknown name.
        names: the known names.
        of: the owner of the names, with " of " in front.
        instead: further values that are allowed.
        meant: the names to suggest that are not among the known ones.
        all_in: the command that lists all names.
        elsewhere: the choices that have the name, and that the config does not make.
    """
    known = list(names)
    quoted = [quote_meant(other) + " at the top level" * (other == name) for other in meant]
    near = f"; did you mean {either(quoted)}?" if quoted else nearest(name, known)
    found = f"unknown {word} {show(name)}{of}"
    if elsewhere and not quoted:
        return f"{found}; this is a key of {either(elsewhere)}, which this config does not choose"
    if quoted or (near and len(known) > FEW):
        return f"{found}{near}" + f" `{all_in}` lists all" * bool(all_in)
    return f"{found}{near or ';'} allowed: {', '.join(known) or 'none'}{instead}"
