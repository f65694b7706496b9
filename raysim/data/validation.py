"""A validation split: training samples held out to choose hyper-parameters by, while the test split stays unseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task
from raysim.system import seeding
from raysim.system.errors import ConfigError


def hold_out(dataset: Dataset, tasks: Sequence[Task], fraction: float, seed: int) -> tuple[Dataset, list[Task]]:
    """Return the data set with a part of its training samples as the test split, and the same tasks over it.

    Of every task's training samples `fraction` (rounded, at least one) is drawn with the run's seed and taken out of
    training. A sample of several tasks, rotated say, is held out in all of them or in none. The true test split is
    dropped.

    Raises:
        ConfigError: a task has one training sample only.
    """
    held = np.zeros(len(dataset.train), dtype=bool)
    drawn = np.zeros(len(dataset.train), dtype=bool)
    for number, task in enumerate(tasks):
        rows = task.train[~drawn[task.train]]
        if len(task.train) < 2:
            raise ConfigError(
                f"evaluation.split: found validation, but task {number + 1} has one training sample, allowed: test"
            )
        if len(rows) > 1:
            count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
            held[seeding.generator(seed, "validation", number).permutation(rows)[:count]] = True
        drawn[rows] = True
    train, test = (Split(dataset.train.x[part], dataset.train.y[part]) for part in (~held, held))
    return replace(dataset, train=train, test=test), [_move(task, held) for task in tasks]


def _move(task: Task, held: npt.NDArray[np.bool_]) -> Task:
    """Return the task with its rows renumbered for the two new splits, which keep the order of the rows."""
    place = np.where(held, np.cumsum(held), np.cumsum(~held)) - 1
    train, test = (place[task.train[held[task.train] == part]].astype(np.int32) for part in (False, True))
    return replace(task, train=train, test=test)
