"""Remarks on the rows of a sweep: the keys in which their methods differ from the published values or the defaults.

The published values are those of tools/published_values.py. A key without one is compared with its default.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from leaderboard_page import fold
from markdown_rows import head, line
from published_values import defaults_of, published_of, same

from raysim.reports.packed import SUFFIX, PackedRun, read_packed
from raysim.sweeps.cells import SPLIT_KEY

ROOT = Path(__file__).parents[1]
TITLE = "Keys of methods that are not the published values or the defaults"


def render_remarks(sweeps: Sequence[str]) -> str:
    """Return the folded table of all rows of some sweeps with such keys, or an empty text.

    Below it are the methods of which no published value is known.
    """
    rows = [
        line(f"`{sweep}`", row, ", ".join(keys)) for sweep in sweeps for row, keys in remarks_of(sweep).items() if keys
    ]
    table = "\n".join([*head("sweep", "row", "keys"), *rows]) if rows else ""
    unknown = [f"`{method}`" for method in unknown_of(sweeps)]
    note = f"Compared with defaults alone, without a published value: {', '.join(unknown)}." if unknown else ""
    return fold(TITLE, "\n\n".join(filter(None, [table, note]))) if table or note else ""


def unknown_of(sweeps: Sequence[str]) -> list[str]:
    """Return the methods of some sweeps that have keys, none of them with a published value."""
    used = {method for sweep in sweeps for _, run in rows_of(sweep) for method in methods_of(run)}
    return sorted(method for method in used if defaults_of(method) and not published_of(method))


def remarks_of(sweep: str) -> dict[str, list[str]]:
    """Return by row the remarks on the keys of its methods, of all its test runs."""
    found: dict[str, dict[tuple[str, str], dict[str, None]]] = {}
    for row, run in rows_of(sweep):
        for method, keys in methods_of(run).items():
            for key, value, known in differences(method, keys):
                found.setdefault(row, {}).setdefault((f"{method}.{key}", known), {})[json.dumps(value)] = None
    return {row: [show(key, [*values], known) for (key, known), values in keys.items()] for row, keys in found.items()}


def show(key: str, values: Sequence[str], known: str) -> str:
    """Return a remark, such as `target.kd=5.0` (published 25), with all values that a row's settings have."""
    try:
        values = sorted(values, key=float)
    except ValueError:  # a word or a list
        values = sorted(values)
    return f"`{key}={', '.join(values)}` ({known})"


@cache
def rows_of(sweep: str) -> list[tuple[str, PackedRun]]:
    """Return the test runs of a packed sweep, each with the name of its row."""
    packed = read_packed(ROOT / "results" / f"{sweep}{SUFFIX}")
    rows = []
    for run in packed.runs:
        axes = packed.sweep.runs[run.path] if packed.sweep else {}
        if SPLIT_KEY not in axes:
            row = axes.get("methods") or ", ".join(name for axis, name in axes.items() if axis != "seed")
            rows.append((row, run))
    return rows


def methods_of(run: PackedRun) -> dict[str, Mapping[str, object]]:
    """Return the methods of a run with their keys."""
    methods = run.config["methods"]
    assert isinstance(methods, Mapping)
    return {method: keys or {} for method, keys in methods.items()}


def differences(method: str, keys: Mapping[str, object]) -> Iterator[tuple[str, object, str]]:
    """Yield the keys of a method in a config that differ, with their value and what is published or the default."""
    usual, published = defaults_of(method), published_of(method)
    for key, value in keys.items():
        is_usual = key in usual and same(usual[key], value)
        default = f"default {json.dumps(usual[key])}" if key in usual else "no default"
        if key not in published:
            if not is_usual:
                yield key, value, default
        elif value not in published[key]:
            yield key, value, f"published {published[key]}"
        elif not is_usual:
            yield key, value, f"published, {default}"
