"""Remarks on the rows of a sweep: the keys in which their methods differ from the defaults.

Defaults are the published values. Where they are not, the method's page says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path

from leaderboard_page import fold
from markdown_rows import head, line

from raysim.config.lookup import resolve
from raysim.reports.packed import SUFFIX, read_packed
from raysim.sweeps.cells import SPLIT_KEY

ROOT = Path(__file__).parents[1]


def render_remarks(sweeps: Sequence[str]) -> str:
    """Return the folded table of all rows of some sweeps with keys that are not the defaults, or an empty text."""
    rows = [
        line(f"`{sweep}`", row, ", ".join(f"`{key}`" for key in keys))
        for sweep in sweeps
        for row, keys in remarks_of(sweep).items()
        if keys
    ]
    if not rows:
        return ""
    return fold("Keys of methods that are not the defaults", "\n".join([*head("sweep", "row", "keys"), *rows]))


def remarks_of(sweep: str) -> dict[str, list[str]]:
    """Return by row the keys of its methods that are not the defaults, such as `target.kd=5`, of all its test runs."""
    packed = read_packed(ROOT / "results" / f"{sweep}{SUFFIX}")
    found: dict[str, dict[str, None]] = {}
    for run in packed.runs:
        axes = packed.sweep.runs[run.path] if packed.sweep else {}
        if SPLIT_KEY not in axes:
            row = axes.get("methods") or ", ".join(name for axis, name in axes.items() if axis != "seed")
            methods = run.config["methods"]
            assert isinstance(methods, Mapping)
            for method, keys in methods.items():
                found.setdefault(row, {}).update(dict.fromkeys(changed(method, keys or {})))
    return {row: [*keys] for row, keys in found.items()}


def changed(method: str, keys: Mapping[str, object]) -> Iterator[str]:
    """Yield the keys of a method in a config that are not the defaults."""
    found = resolve("method", method)
    usual = {field.name: field.default for field in fields(found)} if is_dataclass(found) else {}
    for key, value in keys.items():
        default = usual.get(key, MISSING)
        if default is MISSING or json.dumps(default) != json.dumps(value):  # a tuple is a list in a config
            yield f"{method}.{key}={json.dumps(value)}"
