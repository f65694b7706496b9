"""Whether two configs are the same run: in all but what only says how it is carried out."""

from raysim.config.document import dotted, to_plain, walk
from raysim.config.error_text import show
from raysim.config.schema import Config

CHANGE_NO_RESULT = (("resources",), ("logging",), ("checkpoint",), ("dataset", "download"))


def result_settings(config: Config) -> dict[str, object]:
    """Return a config's leaves by their dotted keys, but for those that change no result."""
    leaves: dict[str, object] = {"methods": [*config.methods]}  # in order, which the leaves below do not say
    for keys, value in walk(to_plain(config)):
        if keys and not (isinstance(value, dict | list) and value):
            ignored = any(keys[: len(one)] == one for one in CHANGE_NO_RESULT)
            leaves |= {} if ignored else {dotted(keys): value}
    return leaves


def describe_difference(one: Config, other: Config) -> str | None:
    """Say in what two configs differ, by the first key that changes results, or nothing where in none."""
    a, b = result_settings(one), result_settings(other)
    keys = [key for key in dict.fromkeys([*a, *b]) if key not in a or key not in b or a[key] != b[key]]
    if not keys:
        return None
    first = min(keys, key=lambda key: key == "methods")  # a method's knob says more than the methods' names
    found, wanted = ("nothing" if first not in leaves else show(leaves[first]) for leaves in (a, b))
    return f"{first}: {found} there, {wanted} here" + (f" (and {len(keys) - 1} more)" if len(keys) > 1 else "")
