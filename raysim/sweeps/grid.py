"""A sweep's file, or a mapping like it, and its runs: every combination of the grid's values, each a valid config."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from raysim.config import Config, open_document, parse_overrides, validate
from raysim.config.block import Block
from raysim.config.comparison import result_settings
from raysim.config.document import Document, Elsewhere, Given, Keys, dotted, to_config_error
from raysim.config.error_text import show
from raysim.config.key_schema import Allowed
from raysim.config.schema import FolderName
from raysim.config.yaml_reading import read_yaml
from raysim.engine.compatibility import check_methods
from raysim.sweeps.axes import Axis, AxisValue, narrow_axis, read_axis, read_setting
from raysim.system.errors import ConfigError

MOST_RUNS = 10_000
SWEEP_FILE = "sweep.yaml"  # beside the runs' folders


class SweepFile(Block):
    """The keys of a sweep's file."""

    name: FolderName
    """The name of the sweep, and of its folder under runs/."""

    base: Annotated[str | dict[str, object], Allowed("a config's path, relative to this file, or a config")]
    """The config that all runs start from."""

    set: Annotated[dict[str, object], Allowed("a block of dotted config keys, such as {seed: 1}")] = Field({})
    """Config keys that hold for all runs."""

    grid: Annotated[
        dict[str, dict[str, object] | list[object]],
        Field(min_length=1),
        Allowed("a block of axes, at least one, such as {seed: [0, 1, 2]}, each with a list or a block of values"),
    ]
    """The axes, the slowest first: every combination of their values is a run."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One run of a sweep: its folder below the sweep's, its config, its value's name on every axis, what it sets."""

    folder: str
    config: Config
    labels: Mapping[str, str]
    settings: Mapping[str, object]


def expand_sweep(
    source: str | Path | Mapping[str, object], overrides: Sequence[str] | Mapping[str, object]
) -> tuple[str, list[Cell]]:
    """Return the name and the runs of a sweep, a YAML file or a mapping; its first axis varies slowest.

    An override of a config key holds for all runs; one of an axis, which is a value, a value's name or a list of them,
    restricts that axis to the values that it names.

    Raises:
        ConfigError: the file, an override or a run's config is wrong, two runs are the same, or there are too many.
    """
    document = open_document(source)
    try:
        file = SweepFile.model_validate(document.values)
    except ValidationError as error:
        raise to_config_error(error, document) from None
    base = _base(document, file)
    for key, value in file.set.items():
        base.put(*read_setting(document, ("set", key), key, value))
    axes = {name: read_axis(document, name, values) for name, values in file.grid.items()}
    _refuse_shared_keys(document, list(axes.values()))
    for given, value in parse_overrides(overrides):
        name = dotted(given.keys)
        if name in axes:
            axes[name] = narrow_axis(axes[name], given, value)
        else:
            _refuse_what_axes_set(axes.values(), given)
            base.put(given.keys, value, given)
    return file.name, _expand_grid(document.file or file.name, base, list(axes.values()))


def _base(document: Document, file: SweepFile) -> Document:
    if isinstance(file.base, str):
        path = Path(document.file).parent / file.base if document.file else Path(file.base)
        if not path.is_file():
            words = f"found {show(file.base)}, and there is no file {path}; allowed: a config's path, relative to this "
            raise ConfigError(document.locate(("base",), words + ("file" if document.file else "directory")))
        return read_yaml(path)
    base = open_document(file.base)
    for keys, line in document.origins.items():
        if keys[0] == "base" and document.file is not None and isinstance(line, int):
            base.origins[keys[1:]] = Elsewhere(document.file, line)
    return base


def _refuse_shared_keys(document: Document, axes: Sequence[Axis]) -> None:
    """Refuse an axis that sets a key of an earlier one, or a block around it: that one would change nothing."""
    earlier: dict[Keys, str] = {}
    for axis in axes:
        sets = {setting.keys for value in axis.values for setting in value.settings}
        for keys in sets:
            for key, other in earlier.items():
                if key[: len(keys)] == keys:
                    words = f"found the key {dotted(keys)}, which sets {dotted(key)} of the axis {other} again"
                    raise ConfigError(document.locate(("grid", axis.name), f"{words}, allowed: keys of no other axis"))
        earlier |= dict.fromkeys(sets, axis.name)


def _refuse_what_axes_set(axes: Iterable[Axis], given: Given) -> None:
    for axis in axes:
        for keys, _, _ in (setting for value in axis.values for setting in value.settings):
            if given.keys[: len(keys)] == keys:
                raise ConfigError(
                    f"{given}: the grid's axis {axis.name} sets {dotted(keys)}, allowed: keys that no axis sets, or "
                    f"{axis.name} itself with some of its values"
                )


def _expand_grid(title: str, base: Document, axes: Sequence[Axis]) -> list[Cell]:
    """Return the runs; `title` is the name of the sweep in errors."""
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST_RUNS:
        raise ConfigError(f"{title}: grid: found {count} runs, allowed: at most {MOST_RUNS}")
    made: dict[str, Cell] = {}
    for values in product(*(axis.values for axis in axes)):
        cell = _cell(title, base, {axis.name: value for axis, value in zip(axes, values, strict=True)})
        same = made.setdefault(str(result_settings(cell.config)), cell)
        if same is not cell:
            raise ConfigError(
                f"{title}: the runs '{same.folder}' and '{cell.folder}' are the same in all that changes results, "
                "allowed: runs that differ"
            )
    return list(made.values())


def _cell(title: str, base: Document, values: Mapping[str, AxisValue]) -> Cell:
    # the runs of all seeds of one setting are in its folder, whichever axis varies slowest
    folder = "/".join(values[name].folder for name in sorted(values, key=lambda name: name == "seed"))
    document = Document(base.file, copy.deepcopy(base.values), dict(base.origins))
    settings: dict[str, Any] = {}
    try:
        if folder == SWEEP_FILE:
            raise ConfigError(f"{title}: a run's folder would be {SWEEP_FILE}, allowed: another name")
        for keys, set_to, origin in (setting for value in values.values() for setting in value.settings):
            document.put(keys, copy.deepcopy(set_to), origin)
            settings[dotted(keys)] = set_to
        config = validate(document)
    except ConfigError as error:
        raise ConfigError(f"{error} (in the run '{folder}')") from None
    try:
        check_methods(config)
    except ConfigError as error:
        raise ConfigError(f"{title}: {error} (in the run '{folder}')") from None
    return Cell(folder, config, {name: value.label for name, value in values.items()}, settings)
