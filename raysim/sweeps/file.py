"""A sweep's file, or a mapping like it: a base config, what holds for all runs, and the axes of the grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from raysim.config import open_document
from raysim.config.block import Block
from raysim.config.document import Document, Elsewhere, Given, dotted
from raysim.config.error_text import show
from raysim.config.key_schema import Allowed
from raysim.config.overrides import parse_overrides
from raysim.config.refusal import to_config_error
from raysim.config.schema import FolderName
from raysim.config.yaml_reading import read_yaml
from raysim.sweeps.axes import Axis, narrow_axis, read_axis, read_setting
from raysim.system.errors import ConfigError


class SweepFile(Block):
    """The keys of a sweep's file."""

    name: FolderName = Field(description="The name of the sweep, and of its folder under runs/.")
    base: Annotated[str | dict[str, object], Allowed("a config's path, relative to this file, or a config")] = Field(
        description="The config that all runs start from."
    )
    set: Annotated[dict[str, object], Allowed("a block of dotted config keys, such as {seed: 1}")] = Field(
        default_factory=dict, description="Config keys that hold for all runs."
    )
    grid: Annotated[
        dict[str, dict[str, object] | list[object]],
        Field(min_length=1),
        Allowed("a block of axes, at least one, such as {seed: [0, 1, 2]}, each with a list or a block of values"),
    ] = Field(description="The axes, the slowest first: every combination of their values is a run.")


@dataclass(frozen=True)
class SweepDefinition:
    """A sweep as it is meant: its base, with what holds for all runs put in, and its axes."""

    name: str
    title: str
    base: Document
    axes: tuple[Axis, ...]


def read_sweep(
    source: str | Path | Mapping[str, object], overrides: Sequence[str] | Mapping[str, object]
) -> SweepDefinition:
    """Return the sweep of a YAML file or a mapping.

    An override of a config key holds for all runs; one of an axis, by its value or the value's name, or a list of
    them, leaves of that axis only what it names.

    Raises:
        ConfigError: the file or an override is wrong.
    """
    document = open_document(source)
    try:
        file = SweepFile.model_validate(document.values)
    except ValidationError as error:
        raise to_config_error(error, document) from None
    base = _base(document, file)
    for key, value in file.set.items():
        found = read_setting(document, ("set", key), key, value)
        base.put(found.keys, found.value, found.origin)
    axes = {name: read_axis(document, name, values) for name, values in file.grid.items()}
    for given, value in parse_overrides(overrides):
        name = dotted(given.keys)
        if name in axes:
            axes[name] = narrow_axis(axes[name], given, value)
        else:
            _refuse_what_axes_set(axes.values(), given)
            base.put(given.keys, value, given)
    return SweepDefinition(file.name, document.file or file.name, base, tuple(axes.values()))


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


def _refuse_what_axes_set(axes: Iterable[Axis], given: Given) -> None:
    for each in axes:
        for keys in each.sets:
            if given.keys[: len(keys)] == keys:
                raise ConfigError(
                    f"{given}: the grid's axis {each.name} sets {dotted(keys)}, allowed: keys that no axis sets, or "
                    f"{each.name} itself with some of its values"
                )
