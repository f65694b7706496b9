"""Published values of methods' keys: of raysim/published/ and of the methods' pages.

A page of a method states them in a comment, below the sentences about them:

    <!-- published values: {rest: defaults, second_pass: [true], virtual: {least: 100, most: 2000}} -->

A key has a list of values, or a range. With `rest: defaults` the other keys' defaults are the published values. The
papers of raysim/published/ add what they state in any setting. With an empty list a key has no published value,
whatever they state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from raysim.config.lookup import resolve

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "methods"
COMMENT = re.compile(r"<!-- published values: (?P<text>\{.*?\}) -->", re.DOTALL)


@dataclass(frozen=True)
class Known:
    """What is published of a key: some values, or a range."""

    values: Sequence[object] = ()
    ends: tuple[float, float] | None = None

    def __contains__(self, value: object) -> bool:
        if self.ends is not None and isinstance(value, int | float) and self.ends[0] <= value <= self.ends[1]:
            return True
        return any(_plain(one) == _plain(value) for one in self.values)

    def __str__(self) -> str:
        texts = [f"{one:.4g}" if isinstance(one, float) else json.dumps(one) for one in self.values]
        if self.ends is not None:
            texts.append(f"{self.ends[0]} to {self.ends[1]}")
        *most, last = texts
        return f"{', '.join(most)} or {last}" if most else last


@cache
def published_of(method: str) -> Mapping[str, Known]:
    """Return the published values of a method's keys, those that the repository states."""
    found: dict[str, list[object]] = {}
    ends: dict[str, tuple[float, float]] = {}
    stated = dict(_of_page(method))
    if stated.pop("rest", None) == "defaults":
        found = {key: [default] for key, default in defaults_of(method).items() if key not in stated}
    for key, known in stated.items():
        if isinstance(known, Mapping):
            ends[key] = (known["least"], known["most"])
        else:
            found[key] = list(known)
    for keys in _of_papers().get(method, []):
        for key, value in keys.items():
            found.setdefault(key, []).append(value)
    known_keys = [key for key in dict.fromkeys([*found, *ends]) if stated.get(key) != []]
    return {key: Known(_single(found.get(key, [])), ends.get(key)) for key in known_keys}


@cache
def defaults_of(method: str) -> Mapping[str, object]:
    """Return the defaults of a method's keys, those that have one."""
    found = resolve("method", method)
    usual = {field.name: field.default for field in fields(found)} if is_dataclass(found) else {}
    return {key: default for key, default in usual.items() if default is not MISSING}


def same(one: object, other: object) -> bool:
    """Return whether two values of a key are the same. A tuple is a list in a config."""
    return _plain(one) == _plain(other)


def _of_page(method: str) -> Mapping[str, Any]:
    page = PAGES / f"{method}.md"
    found = COMMENT.search(page.read_text(encoding="utf-8")) if page.is_file() else None
    return yaml.safe_load(found["text"]) if found else {}


@cache
def _of_papers() -> Mapping[str, Sequence[Mapping[str, object]]]:
    """Return by method the keys that papers give it, in a setting or as one of their methods."""
    found: dict[str, list[Mapping[str, object]]] = {}
    for file in sorted((ROOT / "raysim" / "published").glob("*.yaml")):
        for methods in _blocks(yaml.safe_load(file.read_text(encoding="utf-8"))):
            for method, keys in methods.items():
                found.setdefault(method, []).append(keys)
    return found


def _blocks(paper: Mapping[str, Any]) -> Iterator[Mapping[str, Mapping[str, object]]]:
    for setting in paper["settings"].values():
        yield setting.get("stated", {}).get("methods", {})
    for methods in paper["methods"].values():
        yield methods or {}


def _single(values: Sequence[object]) -> list[object]:
    """Return values without repetition, numbers in ascending order."""
    single = [one for place, one in enumerate(values) if not any(same(one, other) for other in values[:place])]
    numbers = all(isinstance(one, int | float) for one in single)
    return sorted(single, key=lambda one: float(str(one))) if numbers and bool not in map(type, single) else single


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
