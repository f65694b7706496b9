"""Published figures beside measured ones.

raysim/published/PAPER.yaml holds a paper's tables. A setting of the paper has a `config`, the part of a run's config
that makes it that setting, and what else is `stated`, from which a run may depart: the departures are listed. A setting
that is `like` an earlier one has all of that one in which it says nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, field_validator

from raysim.config.error_text import either, nearest, show
from raysim.config.lookup import resolve
from raysim.config.yaml_reading import parse_value
from raysim.evaluation.metrics import protocol_label
from raysim.report.content import Comparison
from raysim.report.grouping import ExperimentSetting, MethodGroup, flatten
from raysim.report.statistics import MeanOverSeeds
from raysim.report.tables import ACCURACY, FINAL_FORGETTING, LEARNING, NOTHING, ReportTable, TableCell
from raysim.system.errors import ConfigError

QUANTITIES = {quantity.key: (quantity, 1) for quantity in (*LEARNING, FINAL_FORGETTING)} | {
    "top10_accuracy": (ACCURACY, 10)
}
"""By a column's metric: the quantity, and the evaluation.top_k of the runs that have it."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PublishedSetting(_Strict):
    """`config` is null where raysim has no such data set or scenario: no run can be of this setting."""

    config: dict[str, object] | None
    stated: dict[str, object] = {}
    like: str | None = None


class PublishedColumn(_Strict):
    """A column of a table, in %: the mean and the standard deviation by method, null where the paper gives none."""

    table: str
    setting: str
    protocol: Literal["domain_il", "class_il", "task_il"]
    metric: Literal["average_accuracy", "forgetting", "final_forgetting", "backward_transfer", "top10_accuracy"]
    cells: dict[str, tuple[float, float | None]]


class PublishedCost(_Strict):
    """A column of what a paper's systems cost: rounds to the best accuracy, summed over the tasks; seconds of a round.

    Nothing measured is set beside it: raysim does not count the first, and the second says nothing about another
    machine.
    """

    table: str
    setting: str
    metric: Literal["rounds_to_best", "seconds_per_round"]
    cells: dict[str, tuple[float, float | None]]


class PublishedPaper(_Strict):
    """A paper. `methods` maps its names to methods blocks, null where raysim has no such method."""

    paper: str
    citation: str
    note: str
    settings: dict[str, PublishedSetting]
    methods: dict[str, dict[str, dict[str, object]] | None]
    tables: list[PublishedColumn]
    costs: list[PublishedCost] = []

    @field_validator("settings")
    @classmethod
    def _whole(cls, settings: dict[str, PublishedSetting]) -> dict[str, PublishedSetting]:
        whole: dict[str, PublishedSetting] = {}
        for name, setting in settings.items():
            whole[name] = setting if setting.like is None else _over(whole[setting.like], setting)
        return whole


def load_paper(paper: str) -> PublishedPaper:
    """Return the figures of a paper.

    Raises:
        ConfigError: there is no such paper.
    """
    folder = files("raysim") / "published"
    known = sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    if paper not in known:
        near = nearest(paper, known)
        raise ConfigError(f"--against {paper}: found no figures of such a paper, allowed: {', '.join(known)}{near}")
    return PublishedPaper.model_validate(parse_value((folder / f"{paper}.yaml").read_text(encoding="utf-8")))


def compare_with_paper(paper: PublishedPaper, setting: ExperimentSetting) -> list[Comparison]:
    """Return a comparison for every setting of the paper that the runs are of, where a method of theirs is in it."""
    return [
        made
        for name, candidate in paper.settings.items()
        if candidate.config is not None and _holds(setting.runs[0].config, candidate.config)
        if (made := _comparison(paper, name, setting))
    ]


def explain_misfit(paper: PublishedPaper, setting: ExperimentSetting) -> str:
    """Say why a setting has no comparison: what keeps it from the nearest of the paper, its metrics or its methods."""
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


def _over(below: PublishedSetting, above: PublishedSetting) -> PublishedSetting:
    """Return a setting with what it leaves to another; what its own config asks for is not `stated` otherwise."""
    own = above.config or {}
    stated = _merged(_merged(below.stated, above.stated), own)
    return PublishedSetting(config=_merged(below.config or {}, own), stated=stated)


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    found = dict(below)
    for key, value in above.items():
        under = found.get(key)
        found[key] = _merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return found


def _comparison(paper: PublishedPaper, name: str, setting: ExperimentSetting) -> Comparison | None:
    matched = [
        (column, method, group)
        for column in paper.tables
        if column.setting == name and QUANTITIES[column.metric][1] == setting.top_k
        for method in column.cells
        for group in setting.groups
        if _has_methods(group, paper.methods[method])
    ]
    if not matched:
        return None
    headings = ("in the paper", "here", "table", "metric", "paper, %", "measured, %", "seeds", "difference", "agree")
    caption = f"{paper.paper}, {name}: published and measured"
    note = f"Agree: the difference is at most the sum of both standard deviations. {paper.note}"
    stated = paper.settings[name].stated
    departures = dict.fromkeys(line for _, _, group in matched for line in _departures(stated, group))
    table = ReportTable(caption, headings, [_row(*one) for one in matched], note, texts=4)
    return Comparison(table, [*departures], paper.citation)


def _has_methods(group: MethodGroup, wanted: Mapping[str, object] | None) -> bool:
    """Return whether a group has the wanted methods in the wanted order, and with the knobs that are named there.

    A run from before a method had some knob is one with that knob's default.
    """
    if wanted is None or [*group.methods] != [*wanted]:
        return False
    return _holds({name: {**vars(resolve("method", name)()), **knobs} for name, knobs in group.methods.items()}, wanted)


def _row(column: PublishedColumn, method: str, group: MethodGroup) -> Sequence[TableCell]:
    quantity, top_k = QUANTITIES[column.metric]
    measured = quantity.average_group(group, column.protocol)
    mean, std = column.cells[method]
    texts = (
        method,
        group.label,
        column.table,
        f"{protocol_label(column.protocol, top_k)} {quantity.heading}",
        quantity.show_mean(MeanOverSeeds(mean, std)),
        quantity.show_mean(measured),
        str(len(group.runs)),
        NOTHING if measured is None else quantity.show(measured.mean - mean, sign=True),
        _agreement(mean, std, measured),
    )
    return [TableCell(text) for text in texts]


def _agreement(mean: float, std: float | None, measured: MeanOverSeeds | None) -> str:
    """Return yes or no, or a dash where one of the two has no standard deviation."""
    if measured is None or measured.std is None or std is None:
        return NOTHING
    return "yes" if abs(measured.mean - mean) <= measured.std + std else "no"


def _departures(stated: Mapping[str, object], group: MethodGroup) -> Iterator[str]:
    """Yield where a group differs from what the paper states; of methods, only those that the group has."""
    found = flatten(group.runs[0].config)
    for key, value in flatten(stated).items():
        of_methods = key.startswith("methods.")
        if of_methods and key.split(".")[1] not in group.methods:
            continue
        if not _holds(found.get(key), value):
            whose = f" ({group.label})" if of_methods else ""
            yield f"{key} is {show(found.get(key))}, in the paper {show(value)}{whose}"


def _holds(found: object, wanted: object) -> bool:
    """Return whether a value has all that is wanted: blocks may have more keys, lists have as many items."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(_holds(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_holds, found, wanted))
    return found == wanted
