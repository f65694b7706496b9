"""Differences between the configs of runs, apart from keys that change no result; names for them."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from raysim.config import parse_overrides
from raysim.config.document import Keys, Overrides, dotted, to_plain, walk
from raysim.config.error_text import shorten, show
from raysim.config.schema import Config
from raysim.config.yaml_text import to_yaml_line

Ignored = Sequence[tuple[str, ...]]

CHANGE_NO_RESULT: Ignored = (("resources",), ("logging",), ("checkpoint",), ("dataset", "download"))
CHANGE_NO_STATE: Ignored = (*CHANGE_NO_RESULT, ("callbacks",))  # a callback may end a run early, and does nothing else


def result_settings(config: Config, ignored: Ignored = CHANGE_NO_RESULT) -> dict[str, object]:
    """Return a config's values by their dotted keys, except those that change no result."""
    leaves: dict[str, object] = {"methods": [*config.methods]}  # in order, which the leaves below do not say
    for keys, value in walk(to_plain(config)):
        is_leaf = not (isinstance(value, dict | list) and value)
        if keys and is_leaf and not _is_ignored(keys, ignored):
            leaves[dotted(keys)] = value
    return leaves


def _is_ignored(keys: Keys, ignored: Ignored) -> bool:
    return any(keys[: len(one)] == one for one in ignored)


def flatten_settings(config: Config) -> dict[str, int | float | str]:
    """Return a config's settings by their dotted keys as numbers or short text, except those that change no result.

    Null is text too, so that a table shows it.
    """
    settings = {
        dotted(keys): value if type(value) in (int, float) else shorten(to_yaml_line(value))
        for keys, value in _settings(to_plain(config), ())
    }
    return {**settings, "methods": " + ".join(config.methods) or "fedavg"}


def label_run(config: Config, overrides: Overrides) -> str:
    """Return a config's methods and the overrides that change results, as a part of a folder's name.

    It has at most 100 characters, none of which a shell expands. It is empty without methods and overrides.
    """
    parts = ["+".join(_plain_letters(name.rpartition(":")[2]) for name in config.methods)]
    for override, given in parse_overrides(overrides):
        for keys, value in _settings(given, override.keys):
            if keys not in (("name",), ("seed",), ("methods",)) and value != {}:
                key = keys[-2] if keys[-1] in ("kind", "name") else keys[-1]
                parts.append(f"{_plain_letters(str(key))}={_plain_letters(to_yaml_line(value))}")
    return ",".join(filter(None, parts))[:100]


def _plain_letters(text: str) -> str:
    return re.sub(r"[^\w.+:-]+", "_", text, flags=re.ASCII).strip("_")


def _settings(value: object, around: Keys) -> Iterator[tuple[Keys, Any]]:
    """Yield the values below a plain value with their keys, lists undivided, except those that change no result."""
    for keys, leaf in walk(value, around):
        below_a_list = any(isinstance(key, int) for key in keys)
        if not (below_a_list or (isinstance(leaf, dict) and leaf) or _is_ignored(keys, CHANGE_NO_RESULT)):
            yield keys, leaf


def describe_difference(one: Config, other: Config, ignored: Ignored = CHANGE_NO_RESULT) -> str | None:
    """Return a text of the first key that changes results and differs between two configs, or None."""
    a, b = result_settings(one, ignored), result_settings(other, ignored)
    keys = [key for key in dict.fromkeys([*a, *b]) if key not in a or key not in b or a[key] != b[key]]
    if not keys:
        return None
    first = min(keys, key=lambda key: key == "methods")  # a method's knob says more than the methods' names
    found, wanted = ("nothing" if first not in leaves else show(leaves[first]) for leaves in (a, b))
    return f"{first}: {found} there, {wanted} here" + (f" (and {len(keys) - 1} more)" if len(keys) > 1 else "")
