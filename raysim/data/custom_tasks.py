"""The tasks of a custom scenario, checked before they are used."""

import operator
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from raysim.config.scenarios import OwnScenario
from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task
from raysim.system.custom_code import place_of
from raysim.system.errors import RunError, locate_errors
from raysim.system.seeding import guard_globals


def make_custom_tasks(spec: OwnScenario, dataset: Dataset, generator: np.random.Generator) -> list[Task]:
    """Return the tasks that a custom scenario makes from a dataset.

    Raises:
        RunError: the result is not `spec.tasks` tasks over the dataset's rows, classes and features.
    """
    with locate_errors(f"scenario {spec.kind}"), guard_globals(f"scenario {spec.kind}", None):
        tasks = spec.with_keys()(dataset, spec.tasks, generator)
    who = f"scenario.kind: {place_of(spec.function())} returned"
    if not isinstance(tasks, Sequence) or len(tasks) != spec.tasks or not all(isinstance(task, Task) for task in tasks):
        returned = f"{len(tasks)} of them" if isinstance(tasks, Sequence) else type(tasks).__name__
        raise RunError(f"{who} {returned}, allowed: a list of {spec.tasks} tasks, raysim.data.scenario.Task")
    return [_check_task(task, dataset, f"{who} in task {number}") for number, task in enumerate(tasks, 1)]


def _check_task(task: Task, dataset: Dataset, who: str) -> Task:
    try:
        classes = tuple(operator.index(label) for label in task.classes)
    except TypeError:
        raise RunError(f"{who} the classes {task.classes!r:.60}, allowed: whole numbers, ascending") from None
    if list(classes) != sorted(set(classes)) or not classes or not 0 <= classes[0] <= classes[-1] < dataset.classes:
        allowed = f"some of 0 to {dataset.classes - 1}, ascending"
        raise RunError(f"{who} the classes {list(classes)}, allowed: {allowed}")
    parts = zip(("train", "test"), (task.train, task.test), (dataset.train, dataset.test), strict=True)
    train, test = (_check_rows(rows, split, classes, f"{who} {name}") for name, rows, split in parts)
    pixels, features = task.pixels, int(np.prod(dataset.shape))
    if pixels is not None:
        pixels = np.asarray(pixels)
        if (
            pixels.shape != (features,)
            or pixels.dtype.kind not in "iu"
            or not -1 <= pixels.min() <= pixels.max() < features
        ):
            allowed = f"null or whole numbers [{features}] from -1 to {features - 1}"
            raise RunError(f"{who} pixels {pixels.dtype} {list(pixels.shape)}, allowed: {allowed}")
        pixels = pixels.astype(np.int32)
    return replace(task, name=str(task.name), classes=classes, pixels=pixels, train=train, test=test)


def _check_rows(rows: object, split: Split, classes: tuple[int, ...], who: str) -> npt.NDArray[np.int32]:
    array = np.asarray(rows)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise RunError(
            f"{who} {array.dtype} {list(array.shape)}, allowed: whole numbers [n], rows of the split, n >= 1"
        )
    if not 0 <= array.min() <= array.max() < len(split):
        raise RunError(f"{who} rows from {array.min()} to {array.max()}, allowed: 0 to {len(split) - 1}")
    if len(np.unique(array)) < len(array):
        raise RunError(f"{who} a row twice, allowed: each once in a task")
    foreign = np.setdiff1d(split.y[array], classes) if split.labelled else np.empty(0)
    if foreign.size:
        raise RunError(f"{who} a sample of class {foreign[0]}, allowed: the task's classes, {list(classes)}")
    return array.astype(np.int32)
