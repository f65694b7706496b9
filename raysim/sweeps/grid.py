"""The runs of a sweep: every combination of its axes' values, each a config of its own that is valid."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from raysim.compatibility import check_methods
from raysim.config import Config, validated
from raysim.config.document import Document, dotted, plain, walk
from raysim.config.messages import show
from raysim.config.overrides import put
from raysim.errors import ConfigError
from raysim.sweeps.axes import Axis, Value
from raysim.sweeps.reading import Sweep

MOST_RUNS = 10_000
FILE = "sweep.yaml"  # beside the runs' folders
CHANGE_NO_RESULT = (("resources",), ("logging",), ("checkpoint",), ("dataset", "download"))


@dataclass(frozen=True)
class Cell:
    """One run of a sweep: its name on every axis, its folder below the sweep's, what it sets, and its config."""

    labels: Mapping[str, str]
    folder: str
    settings: Mapping[str, object]
    config: Config


def cells(sweep: Sweep) -> list[Cell]:
    """Return the runs of a sweep, the first axis varying slowest.

    Raises:
        ConfigError: a run's config is wrong, two runs are the same, or there are too many.
    """
    count = math.prod(len(axis.values) for axis in sweep.axes)
    if count > MOST_RUNS:
        raise ConfigError(f"{sweep.title}: grid: found {count} runs, allowed: at most {MOST_RUNS}")
    made: dict[str, Cell] = {}
    for values in product(*(axis.values for axis in sweep.axes)):
        cell = _cell(sweep, values)
        same = made.setdefault(str(what_matters(cell.config)), cell)
        if same is not cell:
            raise ConfigError(
                f"{sweep.title}: the runs '{same.folder}' and '{cell.folder}' are the same in all that changes "
                "results, allowed: runs that differ"
            )
    return list(made.values())


def what_matters(config: Config) -> dict[str, object]:
    """Return a config's leaves by their dotted keys, but for those that change no result."""
    leaves: dict[str, object] = {"methods": [*config.methods]}  # in order, which the leaves below do not say
    for keys, value in walk(plain(config)):
        if keys and not (isinstance(value, dict | list) and value):
            ignored = any(keys[: len(one)] == one for one in CHANGE_NO_RESULT)
            leaves |= {} if ignored else {dotted(keys): value}
    return leaves


def difference(one: Config, other: Config) -> str | None:
    """Say in what two configs differ, by the first key that changes results, or nothing where in none."""
    a, b = what_matters(one), what_matters(other)
    keys = [key for key in dict.fromkeys([*a, *b]) if key not in a or key not in b or a[key] != b[key]]
    if not keys:
        return None
    first = min(keys, key=lambda key: key == "methods")  # a method's knob says more than the methods' names
    found, wanted = ("nothing" if first not in leaves else show(leaves[first]) for leaves in (a, b))
    return f"{first}: {found} there, {wanted} here" + (f" (and {len(keys) - 1} more)" if len(keys) > 1 else "")


def _cell(sweep: Sweep, values: Sequence[Value]) -> Cell:
    folder = "/".join(value.folder for value in _seed_innermost(sweep.axes, values))
    document = Document(sweep.base.file, copy.deepcopy(sweep.base.values), dict(sweep.base.origins))
    settings: dict[str, Any] = {}
    try:
        if folder == FILE:
            raise ConfigError(f"{sweep.title}: a run's folder would be {FILE}, allowed: another name")
        for setting in (setting for value in values for setting in value.settings):
            put(document, setting.keys, copy.deepcopy(setting.value), setting.origin)
            settings[dotted(setting.keys)] = setting.value
        config = validated(document)
    except ConfigError as error:
        raise ConfigError(f"{error} (in the run '{folder}')") from None
    try:
        check_methods(config)
    except ConfigError as error:
        raise ConfigError(f"{sweep.title}: {error} (in the run '{folder}')") from None
    labels = {axis.name: value.label for axis, value in zip(sweep.axes, values, strict=True)}
    return Cell(labels, folder, settings, config)


def _seed_innermost(axes: Sequence[Axis], values: Sequence[Value]) -> list[Value]:
    """Order the values for a path: the seeds of one setting lie in its folder, whichever axis varies slowest."""
    pairs = zip(axes, values, strict=True)
    return [value for _, value in sorted(pairs, key=lambda pair: pair[0].name == "seed")]
