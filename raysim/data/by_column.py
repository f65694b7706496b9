"""Tasks by a column of the data: intervals of a time stamp, a site or any other value, in ascending order."""

import re

import numpy as np
import numpy.typing as npt

from raysim.config.error_text import nearest, shorten, show
from raysim.config.scenarios import ByColumn
from raysim.data.columns import NUMBERS, read_moment, rows_by_value
from raysim.data.dataset import Array, Dataset
from raysim.data.scenario import Task
from raysim.system.errors import ConfigError

Ranks = npt.NDArray[np.int64]

DATE = re.compile(r"(?!\d{4}\D\d\d\D\d\d(?!\d))\d{1,4}([./_-])\d{1,2}\1\d{1,4}(?!\d)", re.ASCII)
"""A date whose text has not the order of time, as 2024/03/30 has."""
FIRST = 1000  # texts that are looked at
LONGEST = 20  # letters of a text in a task's name
BEYOND = np.iinfo(np.int64).max  # a rank that no sample has


def by_column(dataset: Dataset, spec: ByColumn) -> list[Task]:
    """Return tasks that are intervals of a column, ascending. A task's training rows are in the order of the column.

    `spec.cuts` are the values at which the second and later tasks begin. Without cuts, numpy.array_split's rule divides
    the training samples in order of the column: equal parts, the first ones larger by one if needed. Samples of equal
    value are in one task: the later one. A column with `spec.tasks` different values, and any column of texts, is
    divided by its values instead. Test samples are assigned by the same intervals.

    With `spec.per` "client" this is done for each client id separately. Test samples of a client without training
    samples are assigned by the intervals of all samples.

    Raises:
        ConfigError: there is no such column, a cut is of another kind, or a task has no training or test samples. Also
            if client ids are needed and missing.
    """
    train, test = (_column(dataset, spec.column, part) for part in ("train", "test"))
    values, ranks = np.unique(np.concatenate([train, test]), return_inverse=True)
    of_train, of_test = np.split(ranks.reshape(-1), [len(train)])
    by_value = values.dtype.kind == "U"
    if spec.per == "client":
        tasks = _divide_by_client(dataset, spec.tasks, of_train, of_test, by_value)
    else:
        starts = _quantiles(of_train, spec.tasks, by_value) if spec.cuts is None else _starts(values, spec)
        tasks = np.searchsorted(starts, of_train, side="right"), np.searchsorted(starts, of_test, side="right")
    in_order = np.argsort(of_train, kind="stable").astype(np.int32)
    return [
        _task(dataset, spec, number, in_order[tasks[0][in_order] == number], np.flatnonzero(tasks[1] == number), train)
        for number in range(spec.tasks)
    ]


def doubt_order(dataset: Dataset, name: str) -> list[str]:
    """Return a warning if a column of texts looks like dates, which it does not order by time."""
    values = dataset.train.columns.get(name, np.empty(0))
    found = [str(value) for value in values[:FIRST] if DATE.match(str(value))] if values.dtype.kind == "U" else []
    if 2 * len(found) <= min(len(values), FIRST):
        return []
    problem = f"found {show(name)} with texts that look like dates, such as {show(found[0])}"
    advice = "name it in dataset.time with dataset.time_format if it is a table's, or write dates as 2024-05-31"
    return [f"scenario.column: {problem}; tasks are in the order of the texts, not of time; {advice}"]


def _column(dataset: Dataset, name: str, part: str) -> Array:
    split = dataset.train if part == "train" else dataset.test
    if name not in split.columns:
        known = [*split.columns]
        allowed = f"{show(known)}{nearest(name, known)}" if known else "none, as this dataset has no columns"
        raise ConfigError(
            f"scenario.column: found {show(name)}, allowed: {allowed}; tables have columns, image_list and text_jsonl "
            "with dataset.columns, and your own dataset with Split(x, y, columns={name: values})"
        )
    return split.columns[name]


def _quantiles(ranks: Ranks, tasks: int, by_value: bool) -> Ranks:
    """Return the ranks at which the second and later tasks begin: BEYOND if there are too few samples."""
    distinct = np.unique(ranks)
    ordered = distinct if by_value or len(distinct) == tasks else np.sort(ranks)
    sizes = [len(part) for part in np.array_split(ordered, tasks)]
    starts: Ranks = np.append(ordered, BEYOND)[np.cumsum(sizes)[:-1]]
    return starts


def _starts(values: Array, spec: ByColumn) -> Ranks:
    """Return the ranks at which the second and later tasks begin, by the config's cuts."""
    cuts: list[object] = [*(spec.cuts or ())]
    kind, allowed = values.dtype.kind, "numbers, as the column's values are"
    if kind == "M":
        cuts, allowed = [read_moment(cut) for cut in cuts], "dates in ISO 8601, as the column's values are"
        wrong = [number for number, cut in enumerate(cuts) if cut is None]
    else:
        wanted = float if kind in NUMBERS else str
        allowed = allowed if wanted is float else "texts, as the column's values are"
        wrong = [number for number, cut in enumerate(cuts) if not isinstance(cut, wanted)]
    if wrong:
        raise ConfigError(f"scenario.cuts.{wrong[0]}: found {show((spec.cuts or ())[wrong[0]])}, allowed: {allowed}")
    ordered = np.array(cuts, dtype=None if kind != "U" else str)
    if not bool((ordered[:-1] < ordered[1:]).all()):
        raise ConfigError(f"scenario.cuts: found {show([*(spec.cuts or ())])}, allowed: ascending values")
    starts: Ranks = np.searchsorted(values, ordered, side="left")
    return starts


def _divide_by_client(
    dataset: Dataset, tasks: int, of_train: Ranks, of_test: Ranks, by_value: bool
) -> tuple[Ranks, Ranks]:
    """Return the task of each training and each test sample (int64), by the intervals of its client."""
    clients, tested = dataset.train.clients, dataset.test.clients
    if clients is None or tested is None:
        which = "training" if clients is None else "test"
        raise ConfigError(
            f"scenario.per: found client, but the {which} samples have no client ids, allowed: run; or a dataset with "
            "client ids in both splits, such as a table with dataset.client"
        )
    found = np.empty_like(of_train)
    found_tests = np.searchsorted(_quantiles(of_train, tasks, by_value), of_test, side="right")
    rows_of_tests = dict(rows_by_value(tested))
    for client, rows in rows_by_value(clients):
        starts = _quantiles(of_train[rows], tasks, by_value)
        found[rows] = np.searchsorted(starts, of_train[rows], side="right")
        own = rows_of_tests.get(client, np.empty(0, np.int64))
        found_tests[own] = np.searchsorted(starts, of_test[own], side="right")
    return found, found_tests


def _task(
    dataset: Dataset, spec: ByColumn, number: int, train: npt.NDArray[np.int32], test: Ranks, values: Array
) -> Task:
    if not len(train) or not len(test):
        found = np.unique(values)
        different = f"{len(found)} different values, from {_write(found[0])} to {_write(found[-1])}"
        advice = "have fewer tasks, or more test samples" if spec.cuts is None else "choose other cuts"
        raise ConfigError(
            f"scenario.{'tasks' if spec.cuts is None else 'cuts'}: task {number + 1} of {spec.tasks} has {len(train)} "
            f"training and {len(test)} test samples, allowed: at least one of each. The column {show(spec.column)} has "
            f"{different}, in {len(values)} training samples; {advice}"
        )
    name = f"{spec.column}, part {number + 1}" if spec.per == "client" else _name(spec.column, values[train[[0, -1]]])
    return Task(name, tuple(range(dataset.classes)), None, train, test.astype(np.int32))


def _name(column: str, ends: Array) -> str:
    """Return a task's name from the column's smallest and largest value in it."""
    low, high = (_write(value) for value in ends)
    return f"{column} {low}" if low == high else f"{column} {low} to {high}"


def _write(value: object) -> str:
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[s]")).removesuffix("T00:00:00")
    if isinstance(value, str):
        return shorten(str(value), LONGEST)
    return f"{value:.4g}" if abs(float(str(value))) < 1000 else f"{value:.10g}"
