"""The tasks of a class-incremental scenario: which classes each has, by number, drawn, or listed by name or number."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from raysim.config.error_text import nearest, show
from raysim.config.scenarios import ClassIncremental
from raysim.data.dataset import Dataset
from raysim.data.scenario import Task
from raysim.system.errors import ConfigError

Labels = npt.NDArray[np.int64]

SHOWN = 5  # classes that an error names


def classes(dataset: Dataset, spec: ClassIncremental, generator: np.random.Generator) -> list[Task]:
    """Return the tasks, each with classes of its own, their samples unchanged; together they have all classes.

    `spec.classes` lists each task's. Otherwise the classes are put in `spec.class_order`, where `seeded` draws from
    `generator`; the first task takes the first `spec.first_task_classes`, and the others share the rest in equal
    parts, of which the first ones are larger by one class where they cannot be equal (as numpy.array_split, and FACIL's
    num_tasks and nc_first_task: Masana et al., TPAMI 2023).

    Raises:
        ConfigError: a class is unknown, listed twice or not listed, there are too few, or a task has no samples.
    """
    if spec.classes is not None:
        listed = _find_labels(dataset, list(chain.from_iterable(spec.classes)), "scenario.classes")
        blocks = np.split(listed, np.cumsum([len(block) for block in spec.classes])[:-1])
    else:
        blocks = _deal(_in_order(dataset, spec, generator), spec.tasks, spec.first_task_classes)
    return [_block(dataset, np.sort(block)) for block in blocks]


def _in_order(dataset: Dataset, spec: ClassIncremental, generator: np.random.Generator) -> Labels:
    """Return all labels in the order in which they are dealt to tasks."""
    if isinstance(spec.class_order, tuple):
        return _find_labels(dataset, spec.class_order, "scenario.class_order")
    return generator.permutation(dataset.classes) if spec.class_order == "seeded" else np.arange(dataset.classes)


def _find_labels(dataset: Dataset, listed: Sequence[int | str], key: str) -> Labels:
    """Return the labels of classes given by number or name, each of which must be there once."""
    count, found = dataset.classes, [_find_label(dataset, name, key) for name in listed]
    each = f"allowed: each of the {count} classes once"
    twice = [label for label in range(count) if found.count(label) > 1]
    if twice:
        raise ConfigError(f"{key}: found {_say(dataset, twice)} more than once, {each}; keep one of them")
    lacking = sorted(set(range(count)) - set(found))
    if lacking:
        raise ConfigError(f"{key}: found no {_say(dataset, lacking)}, {each}; add what is missing")
    return np.asarray(found)


def _find_label(dataset: Dataset, name: int | str, key: str) -> int:
    names, numbers = dataset.names or (), f"0 to {dataset.classes - 1}"
    if isinstance(name, int) and name < dataset.classes:
        return name
    if name in names:
        return names.index(str(name))
    by_name = (
        f" or the data set's names of classes{nearest(name, names)}" if names else ", as the data set has no names"
    )
    raise ConfigError(f"{key}: found the class {show(name)}, allowed: {numbers}{by_name}")


def _say(dataset: Dataset, labels: Sequence[int]) -> str:
    """Return the first of some classes, with their names, in words."""
    shown = [f"{label} ({dataset.names[label]})" if dataset.names else str(label) for label in labels[:SHOWN]]
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return f"class{'es' if len(labels) > 1 else ''} {', '.join(shown)}{more}"


def _deal(labels: Labels, tasks: int, first: int | None) -> list[Labels]:
    """Deal labels to tasks, in order."""
    count = len(labels)
    if tasks > count:
        raise ConfigError(f"scenario.tasks: found {tasks}, allowed: 1 to {count}, as each has at least one class")
    if first is None:
        return np.array_split(labels, tasks)
    if first > count - tasks + 1:
        raise ConfigError(
            f"scenario.first_task_classes: found {first} of {count} classes, allowed: 1 to {count - tasks + 1}, as "
            f"each of the {tasks} tasks has at least one; or fewer tasks"
        )
    return [labels[:first], *np.array_split(labels[first:], tasks - 1)]


def _block(dataset: Dataset, labels: Labels) -> Task:
    train, test = (np.flatnonzero(np.isin(split.y, labels)).astype(np.int32) for split in (dataset.train, dataset.test))
    name = "classes " + " ".join(str(label) for label in labels)
    if not len(train) or not len(test):
        raise ConfigError(
            f"scenario.tasks: the task of {name} has {len(train)} training and {len(test)} test samples; "
            "have fewer tasks, or a data set with samples of every class"
        )
    return Task(name, tuple(int(label) for label in labels), None, train, test)
