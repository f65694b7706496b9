"""The tasks of a class-incremental scenario: the classes of each task, and the classes that are repeated."""

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
    """Return the tasks. Each has its own classes, and together they have all classes. Samples are unchanged.

    `spec.classes` lists each task's classes. Otherwise the classes are put in `spec.class_order`; `seeded` draws the
    order from `generator`. The first task takes the first `spec.first_task_classes` classes. The other tasks share the
    rest as numpy.array_split does: equal parts, the first ones larger by one class if needed. (These are FACIL's
    num_tasks and nc_first_task: Masana et al., TPAMI 2023.)

    With `spec.repetition` classes return in later tasks, see `_repeat`. A class's training samples are divided among
    its tasks at random, in parts that differ by at most one sample, so no sample appears twice. All test samples of a
    class are in the test set of each of its tasks.

    Raises:
        ConfigError: `classes` has an unknown class, lists one twice or omits one; or a task has no class or no samples.
            Also if a class has fewer samples than tasks.
    """
    if spec.classes is not None:
        blocks = _listed(dataset, spec.classes, once=spec.repetition is None)
    else:
        key = "scenario.tasks" if spec.repetition is None else "scenario.repetition.introduced_by"
        blocks = _divide(_in_order(dataset, spec, generator), spec.dealt, spec.first_task_classes, key)
    if spec.repetition is None:
        return [_block(dataset, np.sort(block), np.isin(dataset.train.y, block)) for block in blocks]
    if isinstance(spec.repetition, Repetition):
        blocks = _repeat(blocks, spec.tasks, spec.repetition.probability, generator)
    task_of_row = _divide_samples(dataset, blocks, generator)
    return [_block(dataset, np.sort(block), task_of_row == task) for task, block in enumerate(blocks)]


def _repeat(blocks: Sequence[Labels], tasks: int, probability: float, generator: np.random.Generator) -> list[Labels]:
    """Return the classes of all tasks, given the `blocks` of classes that are new in the first tasks.

    A class returns in each task after its first with this probability. A task without any class gets one, drawn
    uniformly. (Hemati et al., CoLLAs 2023. Their sampling-based generator also draws the first occurrences.)
    """
    count = sum(map(len, blocks))
    occurs = generator.random((tasks, count)) < probability
    fallback = generator.integers(count, size=tasks)
    for task, block in enumerate(blocks):
        occurs[:task, block] = False
        occurs[task, block] = True
    for task in range(tasks):
        if not occurs[task].any():  # a task after those with new classes, so every class may return
            occurs[task, fallback[task]] = True
    return [np.flatnonzero(row) for row in occurs]


def _divide_samples(dataset: Dataset, blocks: Sequence[Labels], generator: np.random.Generator) -> Labels:
    """Return the task of each training sample (int64 [N]): a class's samples are divided among its tasks."""
    task_of_row = np.full(len(dataset.train), -1)
    for label in range(dataset.classes):
        tasks_with_it = [task for task, block in enumerate(blocks) if label in block]
        rows = generator.permutation(np.flatnonzero(dataset.train.y == label))
        if len(rows) < len(tasks_with_it):
            problem = f"{_describe(dataset, [label])} in {len(tasks_with_it)} tasks, of {len(rows)} training samples"
            raise ConfigError(f"scenario.repetition: found {problem}, allowed: at most as many tasks as samples")
        for task, part in zip(tasks_with_it, np.array_split(rows, len(tasks_with_it)), strict=True):
            task_of_row[part] = task
    return task_of_row


def _in_order(dataset: Dataset, spec: ClassIncremental, generator: np.random.Generator) -> Labels:
    """Return all labels in the order in which tasks receive them."""
    if isinstance(spec.class_order, tuple):
        return _find_labels(dataset, spec.class_order, "scenario.class_order")
    return generator.permutation(dataset.classes) if spec.class_order == "seeded" else np.arange(dataset.classes)


def _listed(dataset: Dataset, lists: Sequence[Sequence[int | str]], once: bool) -> list[Labels]:
    """Return the labels of each task's listed classes. `once` forbids a class in two tasks."""
    labels = _find_labels(dataset, list(chain.from_iterable(lists)), "scenario.classes", once)
    blocks = np.split(labels, np.cumsum([len(part) for part in lists])[:-1])
    for task, block in enumerate(blocks):
        if len(np.unique(block)) < len(block):
            raise ConfigError(f"scenario.classes.{task}: found a class twice in it, allowed: each once in a task")
    return blocks


def _find_labels(dataset: Dataset, listed: Sequence[int | str], key: str, once: bool = True) -> Labels:
    """Return the labels of classes given by number or name. Every class must be listed, at most once if `once`."""
    count, labels = dataset.classes, [_find_label(dataset, name, key) for name in listed]
    allowed = f"allowed: each of the {count} classes{' once' * once}"
    repeated = [label for label in range(count) if labels.count(label) > 1]
    if repeated and once:
        advice = "; keep one of them" + ", or set scenario.repetition=listed" * (key == "scenario.classes")
        raise ConfigError(f"{key}: found {_describe(dataset, repeated)} more than once, {allowed}{advice}")
    missing = sorted(set(range(count)) - set(labels))
    if missing:
        raise ConfigError(f"{key}: found no {_describe(dataset, missing)}, {allowed}; add what is missing")
    return np.asarray(labels)


def _find_label(dataset: Dataset, name: int | str, key: str) -> int:
    names, numbers = dataset.names or (), f"0 to {dataset.classes - 1}"
    if isinstance(name, int) and name < dataset.classes:
        return name
    if name in names:
        return names.index(str(name))
    by_name = f" or the dataset's names of classes{nearest(name, names)}" if names else ", as the dataset has no names"
    raise ConfigError(f"{key}: found the class {show(name)}, allowed: {numbers}{by_name}")


def _describe(dataset: Dataset, labels: Sequence[int]) -> str:
    """Return the first classes and their names as text."""
    shown = [f"{label} ({dataset.names[label]})" if dataset.names else str(label) for label in labels[:SHOWN]]
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return f"class{'es' if len(labels) > 1 else ''} {', '.join(shown)}{more}"


def _divide(labels: Labels, tasks: int, first: int | None, key: str) -> list[Labels]:
    """Divide labels among tasks, in order. Errors name `key`."""
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
    """Return the task of these classes (ascending) and of the training samples marked by `shown`."""
    train, test = (np.flatnonzero(mask).astype(np.int32) for mask in (shown, np.isin(dataset.test.y, labels)))
    name = "classes " + " ".join(str(label) for label in labels)
    if not len(train) or not len(test):
        raise ConfigError(
            f"scenario.tasks: the task of {name} has {len(train)} training and {len(test)} test samples; "
            "have fewer tasks, or a dataset with samples of every class"
        )
    return Task(name, tuple(int(label) for label in labels), None, train, test)
