"""Which runs are compared: those of one setting, grouped by method; the seeds of a group are its replicates.

Two runs are of the same setting where their configs agree in all but what a comparison varies (the methods, the seed)
and what does not change results (the name, how the run was carried out).

A group is called by its methods, with the knobs only where two groups of the setting differ in them; a setting by the
keys in which it differs from the others. The names that a sweep gave go before both, where they tell all apart.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysim.config.error_text import show
from raysim.evaluation.metrics import metric_of, protocol_label
from raysim.objectives import Metric
from raysim.report.reading import FinishedRun, Methods
from raysim.system.errors import single_line

NOT_OF_THE_SETTING = ("name", "seed", "methods", "resources", "logging", "checkpoint", "evaluation.per_client")

Flat = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class MethodGroup:
    """The runs of one combination of methods in one setting, by seed; no seed comes twice."""

    label: str
    methods: Methods
    runs: Sequence[FinishedRun]


@dataclass(frozen=True, eq=False)
class ExperimentSetting:
    """The groups that differ in their methods only. `differing`: the keys in which the settings of a report differ."""

    number: int
    title: str
    differing: Flat
    groups: Sequence[MethodGroup]

    @property
    def protocols(self) -> list[str]:
        """The protocols by which its runs were evaluated."""
        return list(dict.fromkeys(protocol for run in self.runs for protocol in run.summary.evaluation))

    @property
    def in_step(self) -> bool:
        """Whether row t is the end of task t at all clients; where it is not, forgetting is undefined."""
        evaluations = [values for run in self.runs for values in run.summary.evaluation.values()]
        return self.tasks == 1 or all(values["forgetting"] is not None for values in evaluations)

    @property
    def tasks(self) -> int:
        """The number of tasks, the same in all runs."""
        return self.runs[0].summary.tasks

    @property
    def top_k(self) -> int:
        """Among how many largest logits the label counts as right, the same in all runs."""
        return self.runs[0].summary.top_k

    @property
    def metric(self) -> Metric:
        """What its runs are tested by, the same in all."""
        return metric_of(next(iter(self.runs[0].summary.evaluation.values())))

    def label(self, protocol: str) -> str:
        """Return what the accuracies of a protocol are called."""
        return protocol_label(protocol, self.top_k, self.runs[0].summary.tested)

    @property
    def runs(self) -> list[FinishedRun]:
        """The runs of all groups."""
        return [run for group in self.groups for run in group.runs]


def group_runs(runs: Sequence[FinishedRun], left_out: list[str]) -> list[ExperimentSetting]:
    """Return the settings; of runs with the same config and seed the last counts, and a line says so of the others."""
    by_setting: dict[tuple[object, ...], list[FinishedRun]] = {}
    for run in runs:
        # by size and protocols too, as a config.yaml that somebody changed may say something else than the results
        metric = metric_of(next(iter(run.summary.evaluation.values())))
        identity = (_identity(_of_the_setting(run)), run.summary.tasks, metric, *run.summary.evaluation)
        by_setting.setdefault(identity, []).append(run)
    members = list(by_setting.values())
    flats = [_of_the_setting(alike[0]) for alike in members]
    keys = _telling_keys(flats)
    differing = [{key: flat[key] for key in flat if key in keys} for flat in flats]
    titles = _unique([_sweep_title(alike) for alike in members]) or list(map(_title, differing, members))
    found = sorted(
        zip(titles, differing, members, strict=True), key=lambda one: [_rank(one[1].get(key)) for key in keys]
    )
    return [
        ExperimentSetting(number, title, apart, _groups(alike, left_out))
        for number, (title, apart, alike) in enumerate(found, 1)
    ]


def derive_label(methods: Methods, among: Sequence[Methods]) -> str:
    """Return a label made of the methods, such as `FedAvg`, `der + fed_a_gem` or `special lam=0.1`.

    `among` has the methods of every group of the setting.
    """
    return " + ".join(_with_knobs(name, knobs, among) for name, knobs in methods.items()) or "FedAvg"


def flatten(values: Mapping[str, object], above: str = "") -> dict[str, object]:
    """Return the values of nested blocks by dotted keys; lists and empty blocks stay whole."""
    found: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found


def _of_the_setting(run: FinishedRun) -> dict[str, object]:
    left_out = tuple(f"{key}." for key in NOT_OF_THE_SETTING)
    # older versions have no such keys
    tested = {"evaluation.top_k": run.summary.top_k, "evaluation.model": run.summary.tested}
    values = {**flatten({"objective": "classification", **run.config}), **tested}
    return {key: value for key, value in values.items() if not f"{key}.".startswith(left_out)}


def _identity(values: Flat) -> str:
    """Return equal strings for equal values; a null or empty key is like one that an older version did not write."""
    return json.dumps({key: value for key, value in values.items() if value not in (None, {})}, sort_keys=True)


def _telling_keys(flats: Sequence[Flat]) -> list[str]:
    """Return the keys in which settings that have them differ; where those do not tell all apart, all that differ."""
    keys = dict.fromkeys(key for values in flats for key in values)
    differing = [key for key in keys if len({_identity({key: values.get(key)}) for values in flats}) > 1]
    telling = [key for key in differing if len({_identity({key: v[key]}) for v in flats if key in v}) > 1]
    apart = {_identity({key: values.get(key) for key in telling}) for values in flats}
    return telling if len(apart) == len(flats) else differing


def _unique(names: Sequence[str | None]) -> list[str]:
    """Return the names where none is missing and no two are the same, else no names."""
    given = [name for name in names if name is not None]
    return given if len(set(given)) == len(names) else []


def _sweep_title(runs: Sequence[FinishedRun]) -> str | None:
    """Return what a sweep calls the runs' setting: their names on its axes but seed and methods; None without such."""
    found = {tuple((axis, name) for axis, name in run.names.items() if axis not in ("seed", "methods")) for run in runs}
    return ", ".join(name for _, name in found.pop()) or None if len(found) == 1 else None


def _title(differing: Flat, runs: Sequence[FinishedRun]) -> str:
    if differing:
        return ", ".join(f"{key}={_show_bare(value)}" for key, value in differing.items())
    names = sorted({run.summary.name for run in runs})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more names" if len(names) > 3 else "")


def _groups(runs: Sequence[FinishedRun], left_out: list[str]) -> list[MethodGroup]:
    by_methods: dict[str, dict[int, FinishedRun]] = {}
    for run in runs:
        identity = json.dumps([[name, _identity(knobs)] for name, knobs in run.methods.items()])
        group = by_methods.setdefault(identity, {})
        if earlier := group.get(run.summary.seed):
            left_out.append(f"{earlier.directory}: the same config and seed as {run.directory}, which is counted")
        group[run.summary.seed] = run
    grouped = [[group[seed] for seed in sorted(group)] for group in by_methods.values()]
    grouped.sort(
        key=lambda group: [(name, [*map(_rank, flatten(knobs).values())]) for name, knobs in group[0].methods.items()]
    )
    methods = [group[0].methods for group in grouped]
    labels = _unique([group[0].names.get("methods") for group in grouped])
    labels = labels or [derive_label(one, methods) for one in methods]
    return list(map(MethodGroup, labels, methods, grouped))


def _with_knobs(name: str, knobs: Mapping[str, object], among: Sequence[Methods]) -> str:
    others = [methods[name] for methods in among if name in methods]
    keys = dict.fromkeys(key for other in others for key in other)
    telling = [key for key in keys if any(other.get(key) != knobs.get(key) for other in others)]
    return " ".join([name, *(f"{key}={_show_bare(knobs.get(key))}" for key in telling)])


def _show_bare(value: object) -> str:
    """Return a config's value in one line, texts without quotes."""
    return single_line(value) if isinstance(value, str) else show(value)


def _rank(value: object) -> tuple[float, str]:
    """Return what sorts values of a key: numbers by size, then all else by its text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), ""
    return float("inf"), str(value)
