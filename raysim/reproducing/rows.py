"""The rows of a paper's tables that raysim can run: at the paper's size, and as rows of bundled sweeps."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from raysim.config import Config, load
from raysim.config.bundled import BUNDLED
from raysim.config.comparison import CHANGE_NO_RESULT, result_settings
from raysim.config.document import to_plain
from raysim.config.error_text import nearest, shorten
from raysim.engine.compatibility import check_methods
from raysim.reports.against import find_departures, has_methods, holds, is_of_setting
from raysim.reports.published import PublishedPaper, merge_blocks
from raysim.sweeps.cells import SPLIT_KEY, Cell
from raysim.sweeps.grid import expand_sweep
from raysim.system.errors import ConfigError

NOT_OF_A_ROW = (*CHANGE_NO_RESULT, ("name",), ("seed",))
SWEEPS = "sweeps/"  # the folder of bundled sweeps
MOST_NAMED = 8  # rows in an error message

Labels = Mapping[str, str]
"""By axis of a sweep, other than the seed: the name of a row's value."""


@dataclass(frozen=True, eq=False)
class PaperRow:
    """A row of a paper: a method in a setting, at the paper's size or as a row of a sweep.

    Attributes:
        number: its number in the paper's list, from 1.
        setting: the name of its setting.
        method: the name of its method in the paper.
        source: the bundled config or sweep that it is run from.
        changes: the dotted keys that differ from this config, with their values; of a sweep, its axes.
        seeds: the seeds of its runs.
        runs: the number of its runs: a run for each seed, and the trials of tuned values.
        config: the config of its first seed, or None if raysim refuses it.
        problem: why raysim refuses it, or "".
        measured_in: by sweep with runs of this config: the names of these runs on the sweep's axes.
    """

    number: int
    setting: str
    method: str
    source: str
    changes: Mapping[str, object]
    seeds: Sequence[int]
    runs: int
    config: Config | None
    problem: str = ""
    measured_in: Mapping[str, Labels] = field(default_factory=dict)

    @property
    def of_sweep(self) -> bool:
        """Whether it is a row of a sweep."""
        return self.source.startswith(SWEEPS)

    @property
    def name(self) -> str:
        """The name that a user types: SETTING/METHOD, and @SWEEP for a row of a sweep."""
        return f"{self.setting}/{self.method}" + f"@{self.source.removeprefix(SWEEPS)}" * self.of_sweep

    @property
    def folder(self) -> str:
        """The name of its directory."""
        return re.sub(r"[^\w.+@-]+", "_", self.name.replace(" w/ ", "+"), flags=re.ASCII).strip("_.")

    @cached_property
    def values(self) -> Mapping[str, object]:
        """The plain values of its config."""
        found = to_plain(self.config)
        return found if isinstance(found, dict) else {}

    def departures(self, paper: PublishedPaper) -> list[str]:
        """Return the differences of its config from what the paper states."""
        if self.config is None:
            return []
        blocks = to_plain(dict(self.config.methods))
        methods = blocks if isinstance(blocks, dict) else {}
        return [*find_departures(paper.settings[self.setting].stated, self.values, methods, self.method)]


def list_rows(paper: PublishedPaper) -> list[PaperRow]:
    """Return a paper's rows: setting by setting, those at the paper's size first.

    A row of a sweep may have the config of one at the paper's size. Then it is no row of its own, and its results are
    those of the other.
    """
    methods = {name: _methods_of(paper, name) for name in paper.settings}
    full = [row for name in paper.settings for row in _rows_at_full_size(paper, name, methods[name])]
    by_settings = {_identify(row.config): row for row in full if row.config is not None}
    smaller: list[PaperRow] = []
    measured: dict[PaperRow, dict[str, Labels]] = {}
    for sweep in paper.sweeps:
        for row in _rows_of_sweep(paper, sweep, methods):
            same = None if row.config is None else by_settings.get(_identify(row.config))
            if same is None:
                smaller.append(row)
            else:
                measured.setdefault(same, {}).update(row.measured_in)
    rows = [replace(row, measured_in=measured.get(row, {})) for row in full] + smaller
    sources = [row.source for row in rows if row.of_sweep]
    places = [*paper.settings]
    rows.sort(key=lambda row: (places.index(row.setting), sources.index(row.source) + 1 if row.of_sweep else 0))
    return [replace(row, number=number) for number, row in enumerate(rows, 1)]


def find_rows(rows: Sequence[PaperRow], text: str, paper: str) -> list[PaperRow]:
    """Return the rows that a text means: a number, SETTING/METHOD, SETTING/METHOD@SWEEP, a SETTING or a METHOD.

    Case, spaces, hyphens and underscores do not count, and neither does `w/`. A row at the paper's size goes before
    those of sweeps.

    Raises:
        ConfigError: there is no such row.
    """
    if text.isdecimal():
        found = [row for row in rows if row.number == int(text)]
    else:
        wanted = _bare(text)
        found = [row for row in rows if _bare(row.name) == wanted]
        found = found or [row for row in rows if _bare(f"{row.setting}/{row.method}") == wanted]
        found = found or [row for row in rows if wanted in (_bare(row.setting), _bare(row.method))]
    if found:
        return found
    near = nearest(text, [row.name for row in rows])
    settings = [*dict.fromkeys(row.setting for row in rows)]
    shown = "; ".join(settings[:MOST_NAMED])
    more = f"; and {len(settings) - MOST_NAMED} more" * (len(settings) > MOST_NAMED)
    words = f"found no such row{near}; see raysim reproduce {paper}"
    allowed = f"a number from 1 to {len(rows)}, or SETTING/METHOD with a setting such as {shown}{more}"
    raise ConfigError(f"{paper} {shorten(text, 100)}: {words}; allowed: {allowed}")


def name_rows(rows: Sequence[PaperRow]) -> str:
    """Return rows for an error message."""
    shown = [f"{row.number} ({row.name})" for row in rows[:MOST_NAMED]]
    more = [f"{len(rows) - MOST_NAMED} more"] * (len(rows) > MOST_NAMED)
    return ", ".join([*shown, *more])


def make_sweep(row: PaperRow, paper: str, seeds: int | None) -> tuple[str | Mapping[str, object], dict[str, object]]:
    """Return the sweep that runs a row, as a file or a mapping, and its overrides.

    Args:
        row: the row.
        paper: the name of the paper.
        seeds: the number of seeds, the first ones; None is all.
    """
    kept = [*row.seeds[:seeds]]
    if row.of_sweep:
        return str(BUNDLED / f"{row.source}.yaml"), {**row.changes, "seed": kept}
    fixed = {key: value for key, value in row.changes.items() if key != "methods"}
    axes = {"seed": kept, "methods": {row.method: row.changes["methods"]}}
    base = str(BUNDLED / f"{row.source}.yaml")
    name = f"{paper}-{row.folder}"
    return {"name": name, "base": base, "set": {"name": name, **fixed}, "grid": axes}, {}


def _methods_of(paper: PublishedPaper, setting: str) -> list[str]:
    """Return the methods in a setting's tables that raysim has, in the paper's order."""
    named = {method for column in paper.tables if column.setting == setting for method in column.cells}
    return [method for method, blocks in paper.methods.items() if method in named and blocks is not None]


def _rows_at_full_size(paper: PublishedPaper, name: str, methods: Sequence[str]) -> Iterator[PaperRow]:
    """Yield the rows of a setting at the paper's size.

    raysim refuses some methods with what the paper states, and takes them with the bundled config's values. Then all
    rows of the setting have these values, so that they remain comparable. Their departures say so.
    """
    setting = paper.settings[name]
    if setting.base is None or setting.config is None:
        return
    base = to_plain(load(BUNDLED / f"{setting.base}.yaml"))
    assert isinstance(base, dict)
    stated = {key: value for key, value in setting.stated.items() if key != "methods"}
    both = [dict(_find_changes(base, wanted)) for wanted in (merge_blocks(stated, setting.config), setting.config)]
    made = ([_make_row(paper, name, setting.base, method, changes) for method in methods] for changes in both)
    yield from min(made, key=lambda rows: sum(bool(row.problem) for row in rows))


def _make_row(paper: PublishedPaper, setting: str, base: str, method: str, changes: Mapping[str, object]) -> PaperRow:
    """Return a row at the paper's size, with the hyperparameters that the paper states if raysim has their values."""
    own = paper.methods[method] or {}
    stated = paper.settings[setting].stated.get("methods")
    knobs = {key: value for key, value in stated.items() if key in own} if isinstance(stated, Mapping) else {}
    file, problem = BUNDLED / f"{base}.yaml", ""
    for block in (merge_blocks(knobs, own), own):
        every = {**changes, "methods": block}
        try:
            config = load(file, [{**every, "seed": paper.seeds[0]}])
            check_methods(config)
        except ConfigError as error:
            problem = problem or str(error)
        else:
            return PaperRow(0, setting, method, base, every, paper.seeds, len(paper.seeds), config)
    every = {**changes, "methods": own}
    return PaperRow(0, setting, method, base, every, paper.seeds, len(paper.seeds), None, problem)


def _find_changes(
    found: Mapping[str, object], wanted: Mapping[str, object], above: str = ""
) -> Iterator[tuple[str, object]]:
    """Yield the keys that a config must change to have the wanted values. A block of another kind is replaced."""
    for key, value in wanted.items():
        own = found.get(key)
        if holds(own, value):
            continue
        other = isinstance(own, Mapping) and isinstance(value, Mapping) and _is_other(own, value)
        if isinstance(own, Mapping) and isinstance(value, Mapping) and (not other or key == "dataset"):
            yield from _find_changes(own, value, f"{above}{key}.")  # a dataset keeps its augmentation
        else:
            yield f"{above}{key}", value


def _is_other(own: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    return any(key in wanted and own.get(key) != wanted[key] for key in ("name", "kind"))


def _rows_of_sweep(paper: PublishedPaper, sweep: str, methods: Mapping[str, Sequence[str]]) -> Iterator[PaperRow]:
    _, cells = expand_sweep(BUNDLED / f"{sweep}.yaml", ())
    alike: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in cells:
        if not cell.trial:
            alike.setdefault(tuple((axis, name) for axis, name in cell.labels.items() if axis != "seed"), []).append(
                cell
            )
    taken = set[tuple[str, str]]()
    for labels, of_row in alike.items():
        config = of_row[0].config
        values = to_plain(config)
        blocks = to_plain(dict(config.methods))
        assert isinstance(values, dict)
        assert isinstance(blocks, dict)
        matching = [
            name for name in methods if paper.settings[name].config is not None and is_of_setting(paper, name, values)
        ]
        for name in _most_special(paper, matching):
            for method in methods[name]:
                if (name, method) in taken or not has_methods(blocks, paper.methods[method]):
                    continue
                taken.add((name, method))
                trials = {folder for cell in of_row for folder in cell.waits_for}
                axes = {axis: [label] for axis, label in labels if axis != SPLIT_KEY}
                seeds = [cell.config.seed for cell in of_row]
                runs = len(of_row) + len(trials)
                yield PaperRow(0, name, method, sweep, axes, seeds, runs, config, "", {sweep: dict(labels)})


def _most_special(paper: PublishedPaper, names: Sequence[str]) -> list[str]:
    """Return the settings, without each that has a part of another one's keys."""
    configs = {name: paper.settings[name].config or {} for name in names}
    return [
        name
        for name, config in configs.items()
        if not any(holds(other, config) and not holds(config, other) for other in configs.values())
    ]


def _identify(config: Config) -> str:
    return str(result_settings(config, NOT_OF_A_ROW))


def _bare(text: str) -> str:
    """Return a name without case, spaces and most signs. `/` and `@` separate its parts."""
    return re.sub(r"[^\w/@%>.]|_", "", re.sub(r"\bw/", "", text.lower()))
