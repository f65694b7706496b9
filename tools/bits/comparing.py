"""What two runs of one name differ in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

Found = Mapping[str, Any]
ABSENT = object()
ADDED = frozenset(
    {
        *("class_il_seen", "test_samples", "accuracy_seen", "final_accuracy"),
        *("average_incremental_accuracy", "average_incremental_accuracy_by_task"),
    }
)
"""Keys that a commit's code may not write yet. One that only the working tree has is no difference."""


def difference(base: Found, here: Found) -> str | None:
    """Return in which parts a run moved, and the first difference; None where it did not.

    A run that failed is an `error`, with what it said, and has moved whatever the other side says.
    """
    failed = [
        f"failed {side}: {found['error']}" for side, found in (("at BASE", base), ("here", here)) if "error" in found
    ]
    if failed:
        return "; ".join(failed)
    parts = _keys(base, here)
    moved = {part: first(part, base.get(part, ABSENT), here.get(part, ABSENT)) for part in parts}
    told = {part: text for part, text in moved.items() if text is not None}
    if not told:
        return None
    return f"{', '.join(told)}; first: {next(iter(told.values()))}"


def first(at: str, base: object, here: object) -> str | None:
    """Return where two values of JSON differ first, and how; None where they are the same to the bit."""
    if isinstance(base, Mapping) and isinstance(here, Mapping):
        inside = [(f"{at}.{key}", base.get(key, ABSENT), here.get(key, ABSENT)) for key in _keys(base, here)]
    elif _is_list(base) and _is_list(here) and len(base) == len(here):
        inside = [(f"{at}[{place}]", *both) for place, both in enumerate(zip(base, here, strict=True))]
    elif _is_list(base) and _is_list(here):
        return f"{at} has {len(base)} at BASE, {len(here)} here"
    else:
        same = base is here or (type(base) is type(here) and repr(base) == repr(here))
        return None if same else f"{at} {_shown(base)} at BASE, {_shown(here)} here"
    return next((text for one in inside if (text := first(*one)) is not None), None)


def _keys(base: Found, here: Found) -> list[str]:
    """Return the keys to compare, in order."""
    return [*base, *(key for key in here if key not in base and key not in ADDED)]


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _shown(value: object) -> str:
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:20]}...{text[-12:]}"
