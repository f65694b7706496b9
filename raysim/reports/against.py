"""Published and measured figures side by side: first the gains that a paper claims, then the absolute values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raysim.config.error_text import either, show
from raysim.config.lookup import resolve, table
from raysim.reports.claims import (
    CHANGE,
    MEANING,
    QUANTITIES,
    ComparedRow,
    find_gains,
    name_metric,
    tabulate_claims,
    to_cells,
)
from raysim.reports.content import ComparedPair, Comparison
from raysim.reports.grouping import ExperimentSetting, MethodGroup, flatten
from raysim.reports.published import PublishedColumn, PublishedPaper
from raysim.reports.quantity_tables import ACCURACY, NOTHING, Quantity, ReportTable
from raysim.reports.reading import Methods
from raysim.reports.statistics import MeanOverSeeds

AGREE = "Agree: the difference is at most the sum of both standard deviations."


@dataclass(frozen=True, eq=False)
class Level:
    """A published cell, and the measured value of a group of the same methods."""

    column: PublishedColumn
    method: str
    group: MethodGroup

    @property
    def quantity(self) -> Quantity:
        """The quantity of the column."""
        return QUANTITIES[self.column.metric][0]

    @property
    def published(self) -> MeanOverSeeds:
        """The published mean and its deviation."""
        return MeanOverSeeds(*self.column.cells[self.method])

    @property
    def measured(self) -> MeanOverSeeds | None:
        """The measured mean and its deviation, or None if the runs lack this quantity."""
        return self.quantity.average_group(self.group, self.column.protocol)

    @property
    def agrees(self) -> bool | None:
        """Whether the difference is at most the sum of both deviations, or None if there are not two."""
        published, measured = self.published, self.measured
        if measured is None or measured.std is None or published.std is None:
            return None
        return abs(measured.mean - published.mean) <= measured.std + published.std

    @property
    def shown(self) -> ComparedPair | None:
        """The level for the plot, if it was measured."""
        if self.measured is None:
            return None
        bounds = (0.0, 100.0) if self.quantity == ACCURACY else CHANGE
        return ComparedPair("level", name_metric(self.column), self.group.label, self.published, self.measured, bounds)


def compare_with_paper(
    paper: PublishedPaper, setting: ExperimentSetting, asked: Sequence[tuple[str, str]] = ()
) -> list[Comparison]:
    """Return a comparison for every setting of the paper that the runs match and that has one of their methods.

    `asked` are the pairs of groups that the report compares in any case, see `find_families`.
    """
    return [
        made
        for name, candidate in paper.settings.items()
        if candidate.config is not None
        if (made := _comparison(paper, name, setting, asked))
    ]


def explain_misfit(paper: PublishedPaper, setting: ExperimentSetting) -> str:
    """Return why a setting has no comparison: its differences from the nearest setting of the paper."""
    apart = {
        name: [*_departures(candidate.config, setting.groups[0])]
        for name, candidate in paper.settings.items()
        if candidate.config is not None
    }
    nearest_one = min(apart, key=lambda name: len(apart[name]))
    metrics = {column.metric for column in paper.tables if column.setting == nearest_one}
    top_k = sorted({QUANTITIES[metric][1] for metric in metrics})
    other = (
        "" if setting.top_k in top_k else f"evaluation.top_k is {setting.top_k}, in the paper {either(map(str, top_k))}"
    )
    why = ", ".join(filter(None, [*apart[nearest_one], other])) or "none of the methods is in its tables"
    return f"setting {setting.number}: no comparison with {paper.paper}; nearest {nearest_one}: {why}"


def _comparison(
    paper: PublishedPaper, name: str, setting: ExperimentSetting, asked: Sequence[tuple[str, str]]
) -> Comparison | None:
    columns = match_rows(paper, name, setting)
    if not columns:
        return None
    title = f"{paper.paper}, {name}"
    gains = [found for found in find_gains(paper, setting, columns, asked) if found]
    levels = [shown for rows in columns for row in rows if (shown := Level(*row).shown)]
    departures = list_departures(paper, name, setting, [group for rows in columns for *_, group in rows])
    tables = [  # only the first table of each kind has a note
        *(tabulate_claims(title, found, MEANING * (found is gains[0])) for found in gains),
        *(_tabulate_levels(title, rows, f"{AGREE} {paper.note}" * (rows is columns[0])) for rows in columns),
    ]
    pairs = [*(gain.shown for found in gains for gain in found), *levels]
    return Comparison(title, tables, pairs, departures, paper.citation)


def list_departures(
    paper: PublishedPaper, name: str, setting: ExperimentSetting, groups: Sequence[MethodGroup]
) -> list[str]:
    """Return the differences of some groups of a setting from what the paper states, each once."""
    stated = paper.settings[name].stated
    departures = dict.fromkeys(line for group in groups for line in _departures(stated, group))
    if setting.runs[0].summary.tested != "global":
        departures["the clients' models are tested, in the paper the server's"] = None
    if setting.split == "validation":
        departures["evaluation.split is validation, in the paper test"] = None
    if file := _file_of_dataset(setting.runs[0].config):
        departures[f"the data were read from {file.name}"] = None
    return [*departures]


def match_rows(paper: PublishedPaper, name: str, setting: ExperimentSetting) -> list[list[ComparedRow]]:
    """Return, for each column of a setting of the paper, the groups that have one of its methods, if any has."""
    return [
        rows
        for column in paper.tables
        if column.setting == name and QUANTITIES[column.metric][1] == setting.top_k
        if (rows := [*_rows(paper, column, setting)])
    ]


def _rows(paper: PublishedPaper, column: PublishedColumn, setting: ExperimentSetting) -> Iterator[ComparedRow]:
    for group in setting.groups:
        for method in column.cells if is_of_setting(paper, column.setting, group.runs[0].config) else ():
            if has_methods(group.methods, paper.methods[method]):
                yield column, method, group


def _tabulate_levels(title: str, rows: Sequence[ComparedRow], note: str) -> ReportTable:
    headings = ("in the paper", "here", "paper, %", "measured, %", "seeds", "difference", "agree")
    table = [_level_row(*row) for row in rows]
    judged = [row[-1] for row in table if row[-1] != NOTHING]
    verdict = f"{judged.count('yes')} of {len(judged)} levels agree." if judged else "No level can be judged."
    column = rows[0][0]
    caption = f"{title}, Table {column.table}: {name_metric(column)}, published and measured"
    return ReportTable(caption, headings, to_cells(table), note, texts=2, verdict=verdict)


def is_of_setting(paper: PublishedPaper, name: str, config: Mapping[str, object]) -> bool:
    """Return whether a run with this config is of a setting of the paper."""
    return holds(_name_dataset(config), paper.settings[name].config)


def has_methods(methods: Methods, wanted: Mapping[str, object] | None) -> bool:
    """Return whether methods are the wanted ones in the wanted order, with the wanted hyperparameters.

    A hyperparameter that is missing in a run's config has its default.
    """
    if wanted is None or [*methods] != [*wanted]:
        return False
    return holds({name: {**vars(resolve("method", name)()), **knobs} for name, knobs in methods.items()}, wanted)


def _level_row(column: PublishedColumn, method: str, group: MethodGroup) -> tuple[str, ...]:
    level = Level(column, method, group)
    measured = level.measured
    return (
        method,
        group.label,
        level.quantity.show_mean(level.published),
        level.quantity.show_mean(measured),
        str(len(group.runs)),
        NOTHING if measured is None else level.quantity.show(measured.mean - level.published.mean, sign=True),
        {True: "yes", False: "no", None: NOTHING}[level.agrees],
    )


def _departures(stated: Mapping[str, object], group: MethodGroup) -> Iterator[str]:
    yield from find_departures(stated, group.runs[0].config, group.methods, group.label)


def find_departures(
    stated: Mapping[str, object], config: Mapping[str, object], methods: Methods, label: str
) -> Iterator[str]:
    """Yield the differences of a run from what the paper states. Methods that the run lacks do not count."""
    found = flatten(_name_dataset(config))
    for key, value in flatten(stated).items():
        of_methods = key.startswith("methods.")
        if of_methods and key.split(".")[1] not in methods:
            continue
        if not holds(found.get(key), value):
            whose = f" ({label})" if of_methods else ""
            yield f"{key} is {show(found.get(key))}, in the paper {show(value)}{whose}"


def _name_dataset(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return a config in which a file such as cifar100.npz is the dataset that it is named after."""
    file, dataset = _file_of_dataset(config), config.get("dataset")
    return {**config, "dataset": {**dataset, "name": file.stem}} if file and isinstance(dataset, Mapping) else config


def _file_of_dataset(config: Mapping[str, object]) -> Path | None:
    """Return the npz file that a run read, if it is named after a dataset of raysim."""
    dataset = config.get("dataset")
    if not isinstance(dataset, Mapping) or dataset.get("name") != "npz":
        return None
    file = Path(str(dataset.get("path")))
    return file if file.stem in table("dataset") else None


def holds(found: object, wanted: object) -> bool:
    """Return whether a value matches the wanted one. Blocks may have more keys; lists have the same length."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(holds(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(holds, found, wanted))
    return found == wanted
