"""Differences between the results of two runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

Found = Mapping[str, Any]
ABSENT = object()


def difference(base: Found, here: Found) -> str | None:
    """Return the parts in which two results differ, with the first difference, or None.

    A failed run has an `error`, and always counts as different.
    """
    failed = [
        f"failed {side}: {found['error']}" for side, found in (("at BASE", base), ("here", here)) if "error" in found
    ]
    if failed:
        return "; ".join(failed)
    moved = {part: first(part, base.get(part, ABSENT), here.get(part, ABSENT)) for part in {**base, **here}}
    told = {part: text for part, text in moved.items() if text is not None}
    if not told:
        return None
    return f"{', '.join(told)}; first: {next(iter(told.values()))}"


def first(at: str, base: object, here: object) -> str | None:
    """Return the first difference of two values of JSON, or None if they are the same to the bit."""
    if isinstance(base, Mapping) and isinstance(here, Mapping):
        inside = [(f"{at}.{key}", base.get(key, ABSENT), here.get(key, ABSENT)) for key in {**base, **here}]
    elif _is_list(base) and _is_list(here) and len(base) == len(here):
        inside = [(f"{at}[{place}]", *both) for place, both in enumerate(zip(base, here, strict=True))]
    elif _is_list(base) and _is_list(here):
        return f"{at} has {len(base)} at BASE, {len(here)} here"
    else:
        same = base is here or (type(base) is type(here) and repr(base) == repr(here))
        return None if same else f"{at} {_shown(base)} at BASE, {_shown(here)} here"
    return next((text for one in inside if (text := first(*one)) is not None), None)


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _shown(value: object) -> str:
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:20]}...{text[-12:]}"
