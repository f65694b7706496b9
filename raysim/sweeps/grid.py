"""A sweep's file, or a mapping like it, and its runs: the grid's axes, what is tuned in them, and what is skipped."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from raysim.config import Config, open_document, parse_overrides, split_key
from raysim.config.block import Allowed, Block
from raysim.config.bundled import bundled_names, find_config
from raysim.config.document import Document, Given, Keys, Line, Overrides, dotted, first_mistake
from raysim.config.error_text import either, nearest, show
from raysim.config.mistakes import explain_errors
from raysim.config.schema import FolderName
from raysim.config.yaml_text import read_yaml
from raysim.sweeps.axes import (
    Axis,
    AxisValue,
    KeySetting,
    add_tuned,
    narrow_axis,
    read_axis,
    read_conditions,
    read_setting,
)
from raysim.sweeps.cells import CONDITION, SPLIT_KEY, Cell, Remark, combine_values, expand_grid
from raysim.sweeps.search import Rate, SearchBudget
from raysim.system.errors import ConfigError

OWN_KEYS = ("grid", "tune", "search")  # of a sweep's file, which KEY=VALUE may change; the config has none of these
SPLIT = "validation"  # what candidates are rated on


class RemarkOfRuns(Block):
    """A remark of a sweep's file."""

    where: dict[str, object]
    """By axis, a value's name or a list of them: the remark is about the runs with one of each."""

    text: str
    """What readers of reports should know about these runs, in a few words."""

    ranked: bool = True
    """Whether reports rank these rows among the others."""


class SweepFile(Block):
    """The keys of a sweep's file."""

    name: FolderName
    """The name of the sweep, and of its folder under runs/."""

    base: Annotated[str | dict[str, object], Allowed("a config's path, relative to this file, or a config")]
    """The config that all runs start from; one that raysim comes with may be given by its name."""

    set: Annotated[dict[str, object], Allowed("a block of dotted config keys, such as {seed: 1}")] = Field({})
    """Config keys that hold for all runs."""

    grid: Annotated[
        dict[str, dict[str, object] | list[object]],
        Field(min_length=1),
        Allowed("a block of axes, at least one, such as {seed: [0, 1, 2]}, each with a list or a block of values"),
    ]
    """The axes, the slowest first: every combination of their values is a run."""

    tune: Annotated[
        dict[str, dict[str, dict[str, object]]],
        Allowed("by axis, further values such as {FedProx: {methods.fedprox.mu: [0.01, 0.1]}}: lists are tried"),
    ] = Field({})
    """By axis, and by a further value's name: config keys; of the items of lists, the best on validation samples."""

    search: SearchBudget = SearchBudget()
    """The trials of each value in tune."""

    skip: Annotated[
        list[dict[str, object]], Allowed("a list of combinations that are no runs, such as {methods: ER, seed: [1, 2]}")
    ] = Field([])
    """Combinations that are no runs: by axis, a value's name or a list of them."""

    remarks: list[RemarkOfRuns] = Field([])
    """What readers of reports should know about some runs."""


def expand_sweep(
    source: str | Path | Mapping[str, object],
    overrides: Overrides,
    rate: Callable[[str, Cell], float | None] = lambda name, trial: None,
) -> tuple[str, list[Cell]]:
    """Return the name and the runs of a sweep, a YAML file or a mapping; its first axis varies slowest.

    An override of a config key holds for all runs. An override of an axis is a value, a value's name or a list of them,
    and restricts that axis to these values. An override of grid or tune changes the file.

    Where values are tuned, the trials on validation samples come first. All candidates have the first seed, and with
    `search` in the file the best ones have further seeds. `rate` receives the sweep's name and a trial. It returns the
    trial's rating: larger is better, -inf if it failed, None if it is yet to be carried out.

    Raises:
        ConfigError: the file, an override or a run's config is wrong, two runs are the same, or there are too many.
    """
    name, expand = read_sweep(source, overrides)
    return name, expand(partial(rate, name))


def read_sweep(
    source: str | Path | Mapping[str, object], overrides: Overrides
) -> tuple[str, Callable[[Rate], list[Cell]]]:
    """Read a sweep and its base, and return its name and a function from trials' ratings to its runs.

    The function reads no file, so that the sweep remains the same if a file is edited while runs are in progress. The
    arguments, the runs and the errors are those of `expand_sweep`.
    """
    document = open_document(source)
    if "dataset" in document.values and not {"base", "grid"} & document.values.keys():
        words = f"found a run's config, allowed: a sweep; did you mean `raysim run {document.file or 'CONFIG'}`?"
        raise ConfigError(words, document.file or "")
    given_ones = list(parse_overrides(overrides))
    for given, value in given_ones:
        if given.keys[0] in OWN_KEYS:
            document.put(given.keys, value, given)
    try:
        file = SweepFile.model_validate(document.values)
    except ValidationError as error:
        raise first_mistake(explain_errors(SweepFile, document.values, error), document) from None
    if mistakes := [mistake.below(("search",)) for mistake in file.search.contradictions()]:
        raise first_mistake(mistakes, document)
    if "search" in document.values and "tune" not in document.values:
        raise document.error(("search",), "found no tune with it, allowed: tune with rows to search, or no search")
    base = _base(document, file)
    fixed = [read_setting(document, ("set", key), key, value) for key, value in file.set.items()]
    for setting in fixed:
        base.put(*setting)
    axes = {name: read_axis(document, name, values) for name, values in file.grid.items()}
    for name, tuned in file.tune.items():
        if name in ("seed", SPLIT_KEY):
            raise document.error(("tune", name), f"found {name}, which all trials share, allowed: any other axis")
        axes[name] = add_tuned(document, axes.get(name, Axis(name, ())), tuned, file.search.draw)
    _refuse_shared_keys(document, fixed, list(axes.values()))
    skipped = [_read_choice(document, axes, ("skip", place), names) for place, names in enumerate(file.skip)]
    for place, one in enumerate(file.remarks):
        if "seed" in one.where:  # a row of a table has all of its seeds
            words = "found seed, allowed: other axes; a remark is about a row, with all of its seeds"
            raise document.error(("remarks", place, "where"), words)
    remarks = [
        (_read_choice(document, axes, ("remarks", place, "where"), one.where), Remark(text=one.text, ranked=one.ranked))
        for place, one in enumerate(file.remarks)
    ]
    rated = AxisValue(SPLIT, SPLIT, [read_setting(document, ("tune",), SPLIT_KEY, SPLIT)])
    seeds = axes["seed"].values[: file.search.seeds] if "seed" in axes else ()
    if len(seeds) < file.search.seeds > 1:
        words = f"found {file.search.seeds}, allowed: at most as many as the axis seed has, {len(seeds)}"
        raise document.error(("search", "seeds"), words)
    by_seed = [{SPLIT_KEY: rated, "seed": seed} for seed in seeds] or [{SPLIT_KEY: rated}]
    conditions = [{CONDITION: value} for value in read_conditions(document, file.search.worst_of)]
    trials = [by_seed, *([{**values, **condition} for values in by_seed] for condition in conditions)]
    transfer = {axis: _read_transfer(document, axes, axis, given) for axis, given in file.search.transfer.items()}
    for given, value in given_ones:
        name = dotted(given.keys)
        if name in axes:
            axes[name] = narrow_axis(axes[name], given, value)
        elif given.keys[0] in SweepFile.model_fields and given.keys[0] not in (*OWN_KEYS, *Config.model_fields):
            words = f"found a key of the sweep's file, allowed: config keys, axes, {either(OWN_KEYS)}; edit the file"
            raise ConfigError(f"{given}: {words}")
        elif given.keys[0] not in OWN_KEYS:
            _refuse_what_axes_set(axes.values(), given)
            base.put(given.keys, value, given)
    title = document.file or file.name
    combinations = combine_values(title, list(axes.values()), skipped)

    def expand(rate: Rate) -> list[Cell]:
        search = partial(file.search.find_best, rate=rate)
        return [_add_remark(cell, remarks) for cell in expand_grid(title, base, combinations, trials, transfer, search)]

    return file.name, expand


def _base(document: Document, file: SweepFile) -> Document:
    if isinstance(file.base, str):
        folder = Path(document.file).parent if document.file else Path()
        path = folder / file.base
        if not path.is_file() and file.base not in bundled_names():
            words = f"found {show(file.base)}, and there is no file {path}; allowed: a config's path, relative to this "
            words += ("file" if document.file else "directory") + ", or a name that `raysim configs` lists"
            words += nearest(file.base, bundled_names())
            raise document.error(("base",), words)
        return read_yaml(find_config(file.base, folder))
    base = open_document(file.base)
    lines = ((keys, line) for keys, line in document.origins.items() if isinstance(line, Line))
    base.origins |= {keys[1:]: line for keys, line in lines if keys[0] == "base"}
    return base


def _read_choice(
    document: Document, axes: Mapping[str, Axis], at: Keys, names: Mapping[str, object]
) -> dict[str, set[str]]:
    """Return, by axis, the names of the chosen values."""
    if strange := [name for name in names if name not in axes]:
        raise document.error((*at, strange[0]), f"found no axis of the grid, allowed: {either(axes)}")
    where = document.place(at)
    return {name: {one.label for one in narrow_axis(axes[name], where, value).values} for name, value in names.items()}


def _read_transfer(
    document: Document, axes: Mapping[str, Axis], axis: str, given: Mapping[str, str]
) -> dict[str, AxisValue]:
    """Return the values of an axis that choose for others, by the names of these others."""
    at: Keys = ("search", "transfer", axis)
    plain = {name: {one.label: one for one in of.values if not one.candidates} for name, of in axes.items()}
    allowed = [name for name, values in plain.items() if name != "seed" and len(values) > 1]
    if axis not in allowed:
        words = f"found {axis}, allowed: {either(allowed)}" if allowed else f"found {axis}, and no axis has two values"
        raise document.error(at, words)
    values = plain[axis]
    for name, source in given.items():
        for one in (name, source):
            if one not in values:
                raise document.error((*at, name), f"found {show(one)}, allowed: {either(values)}")
        if source in given:
            words = f"found {source}, which takes the choices of {given[source]}, allowed: a value that is tuned"
            raise document.error((*at, name), words)
    return {name: values[source] for name, source in given.items()}


def _add_remark(cell: Cell, remarks: Sequence[tuple[Mapping[str, set[str]], Remark]]) -> Cell:
    """Return the run with the remarks about it as one."""
    about = [one for where, one in remarks if all(cell.labels.get(axis) in names for axis, names in where.items())]
    if not about:
        return cell
    text = "; ".join(one.text for one in about)
    return replace(cell, remark=Remark(text=text, ranked=all(one.ranked for one in about)))


def _refuse_shared_keys(document: Document, fixed: Sequence[KeySetting], axes: Sequence[Axis]) -> None:
    """Refuse an axis that sets a key again which `set` or an earlier axis sets, so that the earlier one is wrong.

    If the earlier axis has named choices and only some of the values set its key, these values take precedence. An
    example is a row with another model than the others.
    """
    earlier = {key: "set" for setting in fixed for key in setting.leaves}
    named = {f"the axis {axis.name}" for axis in axes if split_key(axis.name, "")[0] not in Config.model_fields}
    for axis in axes:
        settings = [setting for value in axis.values for setting in value.all_settings]
        by_value = [{setting.keys for setting in value.all_settings} for value in axis.values]
        for keys in {setting.keys: None for setting in settings}:
            by_some = not all(keys in of_value for of_value in by_value)
            for key, other in earlier.items():
                if key[: len(keys)] == keys and not (by_some and other in named):
                    words = f"found the key {dotted(keys)}, which sets {dotted(key)} of {other} again"
                    own = "tune" if ("tune", axis.name) in document.origins else "grid"
                    raise document.error((own, axis.name), f"{words}, allowed: keys of no other axis")
        earlier |= {key: f"the axis {axis.name}" for setting in settings for key in setting.leaves}


def _refuse_what_axes_set(axes: Iterable[Axis], given: Given) -> None:
    for axis in axes:
        for keys in {setting.keys for value in axis.values for setting in value.all_settings}:
            if given.keys[: len(keys)] == keys:
                raise ConfigError(
                    f"{given}: the grid's axis {axis.name} sets {dotted(keys)}, allowed: keys that no axis sets, or "
                    f"{axis.name} itself with some of its values"
                )
