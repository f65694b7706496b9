"""Whether two configs are the same run: in all but what only says how it is carried out."""

from collections.abc import Sequence

from raysim.config.document import dotted, to_plain, walk
from raysim.config.error_text import show
from raysim.config.schema import Config

Ignored = Sequence[tuple[str, ...]]

CHANGE_NO_RESULT: Ignored = (("resources",), ("logging",), ("checkpoint",), ("dataset", "download"))
CHANGE_NO_STATE: Ignored = (*CHANGE_NO_RESULT, ("callbacks",))  # a callback may end a run early, and does nothing else


def result_settings(config: Config, ignored: Ignored = CHANGE_NO_RESULT) -> dict[str, object]:
    """Return a config's leaves by their dotted keys, but for those that change no result."""
    leaves: dict[str, object] = {"methods": [*config.methods]}  # in order, which the leaves below do not say
    for keys, value in walk(to_plain(config)):
        if keys and not (isinstance(value, dict | list) and value):
            left_out = any(keys[: len(one)] == one for one in ignored)
            leaves |= {} if left_out else {dotted(keys): value}
    return leaves


def describe_difference(one: Config, other: Config, ignored: Ignored = CHANGE_NO_RESULT) -> str | None:
    """Say in what two configs differ, by the first key that changes results, or nothing where in none."""
    a, b = result_settings(one, ignored), result_settings(other, ignored)
    keys = [key for key in dict.fromkeys([*a, *b]) if key not in a or key not in b or a[key] != b[key]]
    if not keys:
        return None
    first = min(keys, key=lambda key: key == "methods")  # a method's knob says more than the methods' names
    found, wanted = ("nothing" if first not in leaves else show(leaves[first]) for leaves in (a, b))
    return f"{first}: {found} there, {wanted} here" + (f" (and {len(keys) - 1} more)" if len(keys) > 1 else "")
