"""Group the runs to compare: by setting, then by methods. The seeds of a group are its replicates.

Two runs are of the same setting if their configs differ only in the methods, the seed, and keys that do not change
results. Examples of such keys are the name and the resources. In a sweep, a row of its axis `methods` may set further
keys, such as a tuned learning rate. Such a key is part of the row and not of the setting. Groups and settings have the
order of their sweep, or else of their methods and keys.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from raysim.config import load
from raysim.config.lookup import only_named_by
from raysim.evaluation.accuracy_matrix import SEEN, metric_of, protocol_label
from raysim.objectives import Metric
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.reports.naming import derive_label, entitle, row_axes, show_bare, sweep_label, unique_names
from raysim.reports.reading import FinishedRun, Methods
from raysim.sweeps.cells import SPLIT_KEY
from raysim.sweeps.grid import SPLIT
from raysim.system.errors import ConfigError

NOT_OF_THE_SETTING = (
    *("name", "seed", "methods", "resources", "logging", "checkpoint", "evaluation.per_client"),
    *("dataset.root", "dataset.download", "callbacks.wandb", "callbacks.mlflow"),
    "evaluation.every",  # of older configs, where it decides nothing
)
OF_THE_TESTS = frozenset({"evaluation.model", "evaluation.split", "evaluation.top_k"})
"""Keys that are always of the setting, as accuracies with others cannot be compared."""

ROWS = "methods"  # the axis of a sweep whose values are the rows of tables
BY_ROW = "by method"  # in the place of a setting's value of a key that differs between the rows of its sweep

BOUNDS = frozenset({"joint", "fixed"})  # methods that no other is compared with: they see all data, or the first task

Flat = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class MethodGroup:
    """The runs of one combination of methods in one setting.

    Attributes:
        label: the name of the group in tables of its setting, with its tuned values.
        name: the label without tuned values, which are not the same in all settings.
        methods: the methods in their order, each with its hyperparameters.
        runs: the runs by seed; no seed comes twice.
        own: its values of the keys that differ between the rows of its sweep, such as a tuned learning rate.
        unfinished: its runs with other seeds that failed or were interrupted.
    """

    label: str
    name: str
    methods: Methods
    runs: Sequence[FinishedRun]
    own: Flat = field(default_factory=dict)
    unfinished: Sequence[FinishedRun] = ()

    @property
    def count(self) -> str:
        """The number of its runs, and of those that did not finish: `3 (2 failed)`."""
        return f"{len(self.runs)}{self.ends}"

    @property
    def ends(self) -> str:
        """The number of its runs that did not finish, ` (2 failed)`, or an empty text."""
        ends = Counter(run.summary.status for run in self.unfinished)
        return f" ({', '.join(f'{number} {status}' for status, number in ends.items())})" if ends else ""

    @property
    def bound(self) -> bool:
        """Whether it is an upper or a lower bound, and no competitor."""
        return not BOUNDS.isdisjoint(self.methods)

    @property
    def remark(self) -> str:
        """What the sweep says about it, or an empty text."""
        found = self.runs[0].remark
        return found.text if found else ""

    @property
    def ranked(self) -> bool:
        """Whether it has ranks: it is no bound, and the sweep does not exclude it."""
        found = self.runs[0].remark
        return not self.bound and (found is None or found.ranked)

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols by which it was evaluated."""
        evaluated = [run.summary.evaluation for run in self.runs]
        return tuple(protocol for protocol in evaluated[0] if all(protocol in one for one in evaluated))


@dataclass(frozen=True, eq=False)
class ExperimentSetting:
    """The groups of runs that differ only in their methods.

    Attributes:
        number: its number in the report, from 1.
        title: its name, from its sweep or its runs.
        differing: its values of the keys in which the settings of the report differ, as far as it has them.
        groups: its groups.
    """

    number: int
    title: str
    differing: Flat
    groups: Sequence[MethodGroup]

    @property
    def protocols(self) -> list[str]:
        """The protocols by which groups were evaluated, those of most groups first."""
        counts = Counter(protocol for group in self.groups for protocol in group.protocols)
        # older runs lack the seen classes
        known = [protocol for protocol in counts if protocol != SEEN or counts[SEEN] == counts["class_il"]]
        return sorted(known, key=lambda protocol: -counts[protocol])

    @property
    def main_protocols(self) -> list[str]:
        """The protocols without class-IL among the seen classes, which is class-IL after the last task."""
        return [protocol for protocol in self.protocols if protocol != SEEN]

    def evaluated(self, protocol: str) -> "ExperimentSetting":
        """Return the setting with the groups that were evaluated by a protocol."""
        return replace(self, groups=[group for group in self.groups if protocol in group.protocols])

    @property
    def packed(self) -> bool:
        """Whether some of its runs were read from a packed file."""
        return any(run.packed for run in self.runs)

    @property
    def in_step(self) -> bool:
        """Whether row t is the end of task t at all clients. Otherwise forgetting is undefined."""
        evaluations = [values for run in self.runs for values in run.summary.evaluation.values()]
        return self.tasks == 1 or all(values["forgetting"] is not None for values in evaluations)

    @property
    def tasks(self) -> int:
        """The number of tasks, the same in all runs."""
        return self.runs[0].summary.tasks

    @property
    def split(self) -> str:
        """The samples of its accuracies, the same in all runs: test or validation."""
        evaluation = self.runs[0].config.get("evaluation")
        return str(evaluation.get("split", "test")) if isinstance(evaluation, Mapping) else "test"

    @property
    def top_k(self) -> int:
        """The top_k of its accuracies, the same in all runs."""
        return self.runs[0].summary.top_k

    @cached_property
    def metric(self) -> Metric:
        """The metric of its runs, the same in all. Its range is known if the objective is."""
        found = metric_of(next(iter(self.runs[0].summary.evaluation.values())))
        if found == ACCURACY_METRIC:
            return found
        try:
            with only_named_by():
                own = load(self.runs[0].config).objective.make().metric
        except ConfigError:  # of a custom component, or of a version that is no longer read
            return found
        return replace(found, range=own.range) if own.name == found.name else found

    def label(self, protocol: str) -> str:
        """Return the label of a protocol's accuracies."""
        label = protocol_label(protocol, self.top_k, self.runs[0].summary.tested)
        return f"{label} on validation samples" if self.split == "validation" else label

    @property
    def runs(self) -> list[FinishedRun]:
        """The runs of all groups."""
        return [run for group in self.groups for run in group.runs]


def group_runs(
    runs: Sequence[FinishedRun], left_out: list[str], unfinished: Sequence[FinishedRun] = ()
) -> list[ExperimentSetting]:
    """Return the settings. Of runs with the same config and seed the last counts; `left_out` gets the others.

    Groups count the `unfinished` runs of their config.
    """
    runs = _without_trials(runs, left_out)
    by_setting: dict[tuple[object, ...], list[FinishedRun]] = {}
    of_rows = _keys_of_rows(runs)
    for run in runs:
        # by size and protocols too, as a config.yaml that somebody changed may say something else than the results
        metric = metric_of(next(iter(run.summary.evaluation.values())))
        values = {key: value for key, value in keys_of_setting(run).items() if key not in of_rows[run]}
        # older runs lack the seen classes; rows of a sweep with a head for each task have other protocols
        protocols = [protocol for protocol in run.summary.evaluation if protocol != SEEN and ROWS not in run.names]
        identity = (_identity(values), run.summary.tasks, metric, *protocols)
        by_setting.setdefault(identity, []).append(run)
    members = list(by_setting.values())
    flats = [
        {key: BY_ROW if key in of_rows[run] else value for key, value in keys_of_setting(run).items()}
        for run, *_ in members
    ]
    keys = _find_differing(flats)
    differing = [{key: flat[key] for key in flat if key in keys} for flat in flats]
    axes = row_axes(members)
    several = len({run.sweep for run in runs}) > 1
    titles = [entitle(alike, axes, several) for alike in members]
    found = sorted(
        zip(titles, differing, members, strict=True),
        key=lambda one: (_place(one[2]), [_rank(one[1].get(key)) for key in keys]),
    )
    lost: dict[str, dict[int, FinishedRun]] = {}
    for run in unfinished:
        lost.setdefault(_identify(run), {})[run.summary.seed] = run
    return [
        ExperimentSetting(number, title, apart, _group_by_methods(alike, axes, of_rows, left_out, lost))
        for number, (title, apart, alike) in enumerate(found, 1)
    ]


def _without_trials(runs: Sequence[FinishedRun], left_out: list[str]) -> Sequence[FinishedRun]:
    """Return the runs without a sweep's trials on validation data, unless there are only trials."""
    # a sweep with runs on test samples by name has the split as an axis, and no trials
    by_axis = {run.place[0] for run in runs if run.names.get(SPLIT_KEY, SPLIT) != SPLIT}
    rest = [run for run in runs if SPLIT_KEY not in run.names or run.place[0] in by_axis]
    if rest and len(rest) < len(runs):
        trials = len(runs) - len(rest)
        words = f"{trials} trial{'s' * (trials > 1)} on validation data, by which sweeps chose hyperparameters"
        left_out.append(words)
    return rest or runs


def _keys_of_rows(runs: Sequence[FinishedRun]) -> Mapping[FinishedRun, frozenset[str]]:
    """Return for each run the keys that differ between the rows of its sweep, with all other axes the same.

    One sweep may have been run in several directories. A key that differs between these alone, and in the same row,
    is not of the rows. The sweep was then run again with another value.
    """
    cells: dict[object, list[FinishedRun]] = {}
    for run in runs:
        others = tuple(sorted((axis, name) for axis, name in run.names.items() if axis not in ("seed", ROWS)))
        cells.setdefault((run.sweep, others) if ROWS in run.names else run.directory, []).append(run)
    found: dict[FinishedRun, frozenset[str]] = {}
    for alike in cells.values():
        by_directory = _keys_that_differ_within(alike, lambda run: run.place[0])
        by_row = _keys_that_differ_within(alike, lambda run: run.names.get(ROWS))
        differing = frozenset(_find_differing([keys_of_setting(run) for run in alike])) - OF_THE_TESTS
        found |= dict.fromkeys(alike, differing - (by_row - by_directory))
    return found


def _keys_that_differ_within(runs: Sequence[FinishedRun], part: Callable[[FinishedRun], object]) -> frozenset[str]:
    """Return the keys that differ between runs of one part."""
    parts: dict[object, list[Flat]] = {}
    for run in runs:
        parts.setdefault(part(run), []).append(keys_of_setting(run))
    return frozenset(key for flats in parts.values() for key in _find_differing(flats))


def flatten(values: Mapping[str, object], above: str = "") -> dict[str, object]:
    """Return the values of nested blocks by dotted keys. Lists and empty blocks are values."""
    found: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found


def keys_of_setting(run: FinishedRun) -> dict[str, object]:
    """Return the values of the keys that may change a run's results, except its methods and its seed."""
    left_out = tuple(f"{key}." for key in NOT_OF_THE_SETTING)
    # older versions have no such keys
    tested = {"evaluation.top_k": run.summary.top_k, "evaluation.model": run.summary.tested}
    values = {**flatten({"objective": "classification", **run.config}), **tested}
    return {key: value for key, value in values.items() if not f"{key}.".startswith(left_out)}


def _identity(values: Flat) -> str:
    """Return equal strings for equal values. A null or empty key counts as absent, as in older versions."""
    return json.dumps({key: value for key, value in values.items() if value not in (None, {})}, sort_keys=True)


def _find_differing(flats: Sequence[Flat]) -> list[str]:
    """Return the keys that do not have the same value in all, or that some lack."""
    keys = dict.fromkeys(key for values in flats for key in values)
    return [key for key in keys if len({_identity({key: values.get(key)}) for values in flats}) > 1]


def _place(runs: Sequence[FinishedRun]) -> tuple[str, int]:
    return min(run.place for run in runs)


def _identify(run: FinishedRun) -> str:
    """Return equal strings for runs that differ only in their seeds and in keys that do not change results."""
    methods = [[name, _identity(knobs)] for name, knobs in run.methods.items()]
    return json.dumps([_identity(keys_of_setting(run)), *methods])


def _group_by_methods(
    runs: Sequence[FinishedRun],
    rows: set[str],
    of_rows: Mapping[FinishedRun, frozenset[str]],
    left_out: list[str],
    unfinished: Mapping[str, Mapping[int, FinishedRun]],
) -> list[MethodGroup]:
    """Return the groups of one setting's runs in their order.

    Args:
        runs: the runs of the setting.
        rows: the axes of sweeps that name groups.
        of_rows: by run: the keys that differ between the rows of its sweep.
        left_out: gets a line for each run that another one with its config and seed replaces.
        unfinished: by config and then by seed: the runs that failed or were interrupted.
    """
    by_config: dict[str, dict[int, FinishedRun]] = {}
    for run in runs:
        group = by_config.setdefault(_identify(run), {})
        if earlier := group.get(run.summary.seed):
            left_out.append(f"{earlier.directory}: the same config and seed as {run.directory}, which is counted")
        group[run.summary.seed] = run
    grouped = [[group[seed] for seed in sorted(group)] for group in by_config.values()]
    grouped.sort(key=lambda group: (_place(group), _rank_methods(group[0].methods)))
    methods = [group[0].methods for group in grouped]
    rows_of = [sweep_label(group, rows) for group in grouped]
    labels = _label_groups(methods, rows_of, [group[0].chosen for group in grouped])
    own = [{k: v for k, v in keys_of_setting(run).items() if k in of_rows[run]} for run, *_ in grouped]
    labels = unique_names(labels) or _with_own_keys(labels, own)
    names = unique_names(rows_of) or labels
    ends = [
        [run for seed, run in unfinished.get(config, {}).items() if seed not in by_config[config]]
        for config in (_identify(run) for run, *_ in grouped)
    ]
    return [
        MethodGroup(label, name, alike[0].methods, alike, of_row, failed)
        for label, name, alike, of_row, failed in zip(labels, names, grouped, own, ends, strict=True)
    ]


def _label_groups(methods: Sequence[Methods], rows: Sequence[str | None], chosen: Sequence[str]) -> list[str]:
    """Return labels: the rows of sweeps with their tuned values, or the methods with or without hyperparameters.

    The last ones may be equal.
    """
    tuned = [row and ", ".join(filter(None, (row, values))) for row, values in zip(rows, chosen, strict=True)]
    labels = unique_names(tuned) or unique_names([derive_label(one, methods) for one in methods])
    return labels or [derive_label(one, methods, spelled=False) for one in methods]


def _with_own_keys(labels: Sequence[str], own: Sequence[Flat]) -> list[str]:
    """Return different labels: with the other keys of rows that differ, such as `FedAvg lr=0.1`, or with numbers."""
    keys = _find_differing(own)
    texts = [
        " ".join([label, *(f"{key.rpartition('.')[2]}={show_bare(values[key])}" for key in keys if key in values)])
        for label, values in zip(labels, own, strict=True)
    ]
    return unique_names(texts) or [f"{text} ({number})" for number, text in enumerate(texts, 1)]


def _rank_methods(methods: Methods) -> list[tuple[str, list[tuple[float, str]]]]:
    return [(name, [*map(_rank, flatten(knobs).values())]) for name, knobs in methods.items()]


def _rank(value: object) -> tuple[float, str]:
    """Return a sort key for a key's values: numbers by size, then others by text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), ""
    return float("inf"), str(value)
