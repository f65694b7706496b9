"""The tasks of a class-incremental scenario: which classes each has, by number, drawn, or listed by name or number,
and which come again.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from raysim.config.error_text import nearest, show
from raysim.config.scenarios import ClassIncremental, Repetition
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

    With `spec.repetition` classes come again in later tasks, see `_repeat`, and a class's training samples are dealt
    to its tasks at random, in parts that differ by one sample at most: none comes twice. All its test samples are in
    the test set of each.

    Raises:
        ConfigError: a class is unknown, listed twice or not listed, there are too few, a task has no samples, or a
            class has fewer than tasks.
    """
    if spec.classes is not None:
        blocks = _listed(dataset, spec.classes, once=spec.repetition is None)
    else:
        key = "scenario.tasks" if spec.repetition is None else "scenario.repetition.introduced_by"
        blocks = _deal(_in_order(dataset, spec, generator), spec.dealt, spec.first_task_classes, key)
    if spec.repetition is None:
        return [_block(dataset, np.sort(block), np.isin(dataset.train.y, block)) for block in blocks]
    if isinstance(spec.repetition, Repetition):
        blocks = _repeat(blocks, spec.tasks, spec.repetition.probability, generator)
    shown = _share_out(dataset, blocks, generator)
    return [_block(dataset, np.sort(block), shown == task) for task, block in enumerate(blocks)]


def _repeat(blocks: Sequence[Labels], tasks: int, probability: float, generator: np.random.Generator) -> list[Labels]:
    """Return the classes of so many tasks, of which `blocks` are those that are new in the first ones.

    Each class comes again in each task after its first with this probability; a task without any gets one class,
    uniformly drawn. (Hemati et al., CoLLAs 2023, whose sampling-based generator draws the first occurrences too.)
    """
    count = sum(map(len, blocks))
    comes = generator.random((tasks, count)) < probability
    spare = generator.integers(count, size=tasks)
    for task, block in enumerate(blocks):
        comes[:task, block] = False
        comes[task, block] = True
    for task in range(tasks):
        if not comes[task].any():  # behind the tasks with new classes, so every class has come
            comes[task, spare[task]] = True
    return [np.flatnonzero(row) for row in comes]


def _share_out(dataset: Dataset, blocks: Sequence[Labels], generator: np.random.Generator) -> Labels:
    """Return the task of each training sample (int64 [N]): each class's samples dealt to the tasks that have it."""
    shown = np.full(len(dataset.train), -1)
    for label in range(dataset.classes):
        its = [task for task, block in enumerate(blocks) if label in block]
        rows = generator.permutation(np.flatnonzero(dataset.train.y == label))
        if len(rows) < len(its):
            found = f"{_say(dataset, [label])} in {len(its)} tasks, of {len(rows)} training samples"
            raise ConfigError(f"scenario.repetition: found {found}, allowed: at most as many tasks as samples")
        for task, part in zip(its, np.array_split(rows, len(its)), strict=True):
            shown[part] = task
    return shown


def _in_order(dataset: Dataset, spec: ClassIncremental, generator: np.random.Generator) -> Labels:
    """Return all labels in the order in which they are dealt to tasks."""
    if isinstance(spec.class_order, tuple):
        return _find_labels(dataset, spec.class_order, "scenario.class_order")
    return generator.permutation(dataset.classes) if spec.class_order == "seeded" else np.arange(dataset.classes)


def _listed(dataset: Dataset, lists: Sequence[Sequence[int | str]], once: bool) -> list[Labels]:
    """Return the labels of each task's classes, which are in one of the lists each, or in several of them."""
    labels = _find_labels(dataset, list(chain.from_iterable(lists)), "scenario.classes", once)
    blocks = np.split(labels, np.cumsum([len(part) for part in lists])[:-1])
    for task, block in enumerate(blocks):
        if len(np.unique(block)) < len(block):
            raise ConfigError(f"scenario.classes.{task}: found a class twice in it, allowed: each once in a task")
    return blocks


def _find_labels(dataset: Dataset, listed: Sequence[int | str], key: str, once: bool = True) -> Labels:
    """Return the labels of classes given by number or name, each of which must be there, `once` or at least once."""
    count, found = dataset.classes, [_find_label(dataset, name, key) for name in listed]
    each = f"allowed: each of the {count} classes{' once' * once}"
    twice = [label for label in range(count) if found.count(label) > 1]
    if twice and once:
        instead = "; keep one of them" + ", or set scenario.repetition=listed" * (key == "scenario.classes")
        raise ConfigError(f"{key}: found {_say(dataset, twice)} more than once, {each}{instead}")
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


def _deal(labels: Labels, tasks: int, first: int | None, key: str) -> list[Labels]:
    """Deal labels to so many tasks (`key`), in order."""
    count = len(labels)
    if tasks > count:
        raise ConfigError(f"{key}: found {tasks}, allowed: 1 to {count}, as each has at least one class")
    if first is None:
        return np.array_split(labels, tasks)
    if first > count - tasks + 1:
        raise ConfigError(
            f"scenario.first_task_classes: found {first} of {count} classes, allowed: 1 to {count - tasks + 1}, as "
            f"each of the {tasks} tasks has at least one; or fewer tasks"
        )
    return [labels[:first], *np.array_split(labels[first:], tasks - 1)]


def _block(dataset: Dataset, labels: Labels, shown: npt.NDArray[np.bool_]) -> Task:
    """Return the task of these classes (ascending) and of the training samples that are `shown` in it."""
    train, test = (np.flatnonzero(of).astype(np.int32) for of in (shown, np.isin(dataset.test.y, labels)))
    name = "classes " + " ".join(str(label) for label in labels)
    if not len(train) or not len(test):
        raise ConfigError(
            f"scenario.tasks: the task of {name} has {len(train)} training and {len(test)} test samples; "
            "have fewer tasks, or a data set with samples of every class"
        )
    return Task(name, tuple(int(label) for label in labels), None, train, test)
