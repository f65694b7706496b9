"""Which runs are compared: those of one setting, grouped by method; the seeds of a group are its replicates.

Two runs are of the same setting where their configs agree in all but what a comparison varies (the methods, the seed)
and what does not change results (the name, how the run was carried out).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from raysim.report.labels import label_of, shown, title
from raysim.report.reading import Run

NOT_OF_THE_SETTING = ("name", "seed", "methods", "resources", "logging", "checkpoint", "evaluation.per_client")

Flat = Mapping[str, object]


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one method in one setting, by seed; no seed comes twice."""

    label: str
    methods: Mapping[str, Mapping[str, object]]
    runs: Sequence[Run]

    def by_seed(self, value: Callable[[Run], float | None]) -> dict[int, float]:
        """Return a value for every seed that has one."""
        found = {run.summary.seed: value(run) for run in self.runs}
        return {seed: number for seed, number in found.items() if number is not None}


@dataclass(frozen=True, eq=False)
class Setting:
    """The groups that differ in their methods only. `differing`: the keys in which the settings of a report differ."""

    number: int
    title: str
    differing: Flat
    groups: Sequence[Group]

    @property
    def protocols(self) -> list[str]:
        """The protocols by which its runs were evaluated."""
        return list(dict.fromkeys(protocol for run in self.runs for protocol in run.evaluation))

    @property
    def in_step(self) -> bool:
        """Whether row t is the end of task t at all clients; where it is not, forgetting is undefined."""
        evaluations = [values for run in self.runs for values in run.evaluation.values()]
        return self.tasks == 1 or all(values.forgetting is not None for values in evaluations)

    @property
    def tasks(self) -> int:
        """The number of tasks, the same in all runs."""
        return self.runs[0].summary.tasks

    @property
    def runs(self) -> list[Run]:
        """The runs of all groups."""
        return [run for group in self.groups for run in group.runs]


def settings_of(runs: Sequence[Run], left_out: list[str]) -> list[Setting]:
    """Return the settings; of runs with the same config and seed the last counts, and a line says so of the others."""
    by_setting: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        # by size and protocols too, as a config.yaml that somebody changed may say something else than the results
        identity = (_identity(_of_the_setting(run)), run.summary.tasks, *run.evaluation)
        by_setting.setdefault(identity, []).append(run)
    flats = [_of_the_setting(members[0]) for members in by_setting.values()]
    keys = _telling_keys(flats)
    apart = [{key: flat[key] for key in flat if key in keys} for flat in flats]
    order = sorted(range(len(flats)), key=lambda index: [_rank(apart[index].get(key)) for key in keys])
    members_of = list(by_setting.values())
    titles = _titles(apart, members_of)
    return [
        Setting(number, titles[index], apart[index], _groups(members_of[index], left_out))
        for number, index in enumerate(order, 1)
    ]


def flat(values: Mapping[str, object], above: str = "") -> dict[str, object]:
    """Return the values of nested blocks by dotted keys; lists and empty blocks stay whole."""
    found: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = value
    return found


def _of_the_setting(run: Run) -> dict[str, object]:
    left_out = tuple(f"{key}." for key in NOT_OF_THE_SETTING)
    return {key: value for key, value in flat(run.config).items() if not f"{key}.".startswith(left_out)}


def _identity(values: Flat) -> str:
    """Return equal strings for equal values; a key that is null is like one that an older raysim did not write."""
    return json.dumps({key: value for key, value in values.items() if value is not None}, sort_keys=True)


def _telling_keys(flats: Sequence[Flat]) -> list[str]:
    """Return the keys in which settings that have them differ; where those do not tell all apart, all that differ."""
    keys = dict.fromkeys(key for values in flats for key in values)
    differing = [key for key in keys if len({_identity({key: values.get(key)}) for values in flats}) > 1]
    telling = [key for key in differing if len({_identity({key: v[key]}) for v in flats if key in v}) > 1]
    apart = {_identity({key: values.get(key) for key in telling}) for values in flats}
    return telling if len(apart) == len(flats) else differing


def _titles(apart: Sequence[Flat], members_of: Sequence[Sequence[Run]]) -> list[str]:
    """Return the settings' titles: their names in a sweep, where all have one and no two the same."""
    names = [title(members) for members in members_of]
    if None not in names and len(set(names)) == len(names):
        return [name or "" for name in names]
    return [_title(values, members) for values, members in zip(apart, members_of, strict=True)]


def _title(apart: Flat, runs: Sequence[Run]) -> str:
    if apart:
        return ", ".join(f"{key}={shown(value)}" for key, value in apart.items())
    names = sorted({run.summary.name for run in runs})
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more names" if len(names) > 3 else "")


def _groups(runs: Sequence[Run], left_out: list[str]) -> list[Group]:
    by_methods: dict[str, dict[int, Run]] = {}
    for run in runs:
        identity = json.dumps([[name, _identity(knobs)] for name, knobs in run.methods.items()])
        group = by_methods.setdefault(identity, {})
        earlier = group.get(run.summary.seed)
        if earlier is not None:
            left_out.append(f"{earlier.directory}: the same config and seed as {run.directory}, which is counted")
        group[run.summary.seed] = run
    grouped = [[group[seed] for seed in sorted(group)] for group in by_methods.values()]
    grouped.sort(key=lambda group: [(name, _ranks(knobs)) for name, knobs in group[0].methods.items()])
    among = [group[0] for group in grouped]
    return [Group(label_of(group[0], among), group[0].methods, group) for group in grouped]


def _ranks(knobs: Flat) -> list[tuple[float, str]]:
    return [_rank(value) for value in flat(knobs).values()]


def _rank(value: object) -> tuple[float, str]:
    """Return what sorts values of a key: numbers by size, then all else by its text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value), ""
    return float("inf"), str(value)
