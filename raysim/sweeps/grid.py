"""The runs of a sweep: every combination of its axes' values, each a config of its own that is valid."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from raysim.config import validate
from raysim.config.comparison import result_settings
from raysim.config.document import Document, dotted
from raysim.engine.batch import Job
from raysim.engine.compatibility import check_methods
from raysim.sweeps.axes import Axis, AxisValue
from raysim.sweeps.file import SweepDefinition
from raysim.system.errors import ConfigError

MOST_RUNS = 10_000
SWEEP_FILE = "sweep.yaml"  # beside the runs' folders


@dataclass(frozen=True)
class Cell(Job):
    """One run of a sweep: a job whose folder lies below the sweep's, its name on every axis, and what it sets."""

    labels: Mapping[str, str]
    settings: Mapping[str, object]


def expand_grid(sweep: SweepDefinition) -> list[Cell]:
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
        same = made.setdefault(str(result_settings(cell.config)), cell)
        if same is not cell:
            raise ConfigError(
                f"{sweep.title}: the runs '{same.folder}' and '{cell.folder}' are the same in all that changes "
                "results, allowed: runs that differ"
            )
    return list(made.values())


def _cell(sweep: SweepDefinition, values: Sequence[AxisValue]) -> Cell:
    folder = "/".join(value.folder for value in _seed_innermost(sweep.axes, values))
    document = Document(sweep.base.file, copy.deepcopy(sweep.base.values), dict(sweep.base.origins))
    settings: dict[str, Any] = {}
    try:
        if folder == SWEEP_FILE:
            raise ConfigError(f"{sweep.title}: a run's folder would be {SWEEP_FILE}, allowed: another name")
        for setting in (setting for value in values for setting in value.settings):
            document.put(setting.keys, copy.deepcopy(setting.value), setting.origin)
            settings[dotted(setting.keys)] = setting.value
        config = validate(document)
    except ConfigError as error:
        raise ConfigError(f"{error} (in the run '{folder}')") from None
    try:
        check_methods(config)
    except ConfigError as error:
        raise ConfigError(f"{sweep.title}: {error} (in the run '{folder}')") from None
    labels = {axis.name: value.label for axis, value in zip(sweep.axes, values, strict=True)}
    return Cell(folder, config, labels, settings)


def _seed_innermost(axes: Sequence[Axis], values: Sequence[AxisValue]) -> list[AxisValue]:
    """Order the values for a path: the seeds of one setting lie in its folder, whichever axis varies slowest."""
    pairs = zip(axes, values, strict=True)
    return [value for _, value in sorted(pairs, key=lambda pair: pair[0].name == "seed")]
