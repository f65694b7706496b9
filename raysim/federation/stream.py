"""One client's data in order of arrival. A sample is a position in the stream, so a rotated image is another sample.

A stream is divided in two ways: into tasks, which transform the samples, and into windows, of which a client has one
at a time. A stage is the part between two boundaries that the client knows: a task, or the whole stream if clients do
not know the boundaries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from copy import copy
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Rows = npt.NDArray[np.int32]


class Stream:
    """The rows (of the train split) that reach one client.

    Args:
        rows: the int32 row numbers of every portion, in order of arrival. A portion is of one task, and a task may have
            several portions. Portions may share an array.
        tasks: the task of each portion; by default 0, 1, ...
        windows: the position at which each window ends; by default every portion is a window.
        stages: the window at which each stage begins; by default every window is a stage.
        stage_tasks: the task of each stage, of which it may have few samples; by default `tasks`.
    """

    def __init__(
        self,
        rows: Sequence[Rows],
        tasks: Sequence[int] | None = None,
        windows: Sequence[int] | None = None,
        stages: Sequence[int] | None = None,
        stage_tasks: Sequence[int] | None = None,
    ) -> None:
        self.rows = tuple(rows)
        self.tasks = tuple(range(len(rows)) if tasks is None else tasks)
        self._portions = [0, *(int(end) for end in np.cumsum([len(r) for r in rows]))]
        self._windows = self._portions if windows is None else [0, *windows]
        self._stages = list(range(len(self._windows) - 1) if stages is None else stages)
        self._stage_tasks = self.tasks if stage_tasks is None else tuple(stage_tasks)
        self._left: npt.NDArray[np.int64] | None = None  # the positions that are left, ascending; None is all

    def __len__(self) -> int:
        return self._portions[-1]

    @property
    def windows(self) -> int:
        """The number of windows in which the data arrive."""
        return len(self._windows) - 1

    def take(self, marked: npt.NDArray[np.bool_]) -> Stream:
        """Return the stream of the rows that are marked (bool, by row), with the same windows and stages."""
        taken = {id(rows): rows[marked[rows]] for rows in self.rows}  # portions may share an array
        before = np.cumsum(np.concatenate([[False], *(marked[rows] for rows in self.rows)]))
        ends = [int(before[end]) for end in self._windows[1:]]
        return Stream([taken[id(rows)] for rows in self.rows], self.tasks, ends, self._stages, self._stage_tasks)

    def leaving_out(self, positions: Tensor) -> Stream:
        """Return this stream without the samples at these positions (int64 [n]). All others keep their positions.

        `span`, `size` and `arrived` leave the samples out. All else describes the stream as it was.
        """
        stream = copy(self)
        stream._left = np.setdiff1d(np.arange(len(self)) if self._left is None else self._left, positions.numpy())
        return stream

    def span(self, first: int, last: int) -> Tensor:
        """Return the positions (int64) of the windows first, ..., last - 1."""
        if self._left is None:
            return torch.arange(self._windows[first], self._windows[last])
        start, stop = np.searchsorted(self._left, [self._windows[first], self._windows[last]])
        return torch.from_numpy(self._left[start:stop].copy())

    def size(self, window: int) -> int:
        """Return the number of samples of one window."""
        if self._left is None:
            return self._windows[window + 1] - self._windows[window]
        return len(self.span(window, window + 1))

    def arrived(self, window: int) -> int:
        """Return the number of samples up to the end of a window."""
        return self._windows[window + 1] if self._left is None else len(self.span(0, window + 1))

    def end(self, window: int) -> int:
        """Return the position at which a window ends: the number of samples up to there, also of those left out."""
        return self._windows[window + 1]

    def samples_of(self, task: int) -> int:
        """Return the number of samples of a task."""
        return sum(len(rows) for task_of_rows, rows in zip(self.tasks, self.rows, strict=True) if task_of_rows == task)

    def tasks_before(self, stage: int) -> list[int]:
        """Return the tasks of the samples before a stage, ascending. Past the last stage these are all tasks."""
        return self.tasks_in(0, self._stages[stage] if stage < len(self._stages) else self.windows)

    def stage(self, window: int) -> int:
        """Return the first window of the stage that a window is in."""
        return self._stages[bisect_right(self._stages, window) - 1]

    def task_of_stage(self, window: int) -> tuple[int, int]:
        """Return the task of the stage that a window is in, and how many tasks there are up to the highest so far."""
        begun = self._stage_tasks[: bisect_right(self._stages, window)]
        return begun[-1], max(begun) + 1

    def task_of_window(self, window: int) -> int:
        """Return the task of a window's stage. If there is one stage: the one with the most samples in the window."""
        counts = self.counts_in(window, window + 1)
        if len(self._stages) > 1 or not counts:
            return self.task_of_stage(window)[0]
        return max(counts, key=lambda task: (counts[task], task))

    def tasks_in(self, first: int, last: int) -> list[int]:
        """Return the tasks of the samples in the windows first, ..., last - 1, ascending."""
        return sorted(self.counts_in(first, last))

    def counts_in(self, first: int, last: int) -> dict[int, int]:
        """Return how many samples of each task there are in the windows first, ..., last - 1."""
        start, stop = self._windows[first], self._windows[last]
        inside = [min(high, stop) - max(low, start) for low, high in pairwise(self._portions)]
        counts: Counter[int] = Counter()
        for task, count in zip(self.tasks, inside, strict=True):
            if count > 0:
                counts[task] += count
        return counts

    def locate(self, positions: Tensor) -> tuple[Tensor, int | Tensor]:
        """Return the rows (int64 [n]) at these positions, and their tasks: one number if all have the same task."""
        indices = positions.numpy()
        if len(indices) and (common := self._portion(indices.min())) == self._portion(indices.max()):
            return torch.from_numpy(self._rows(common, indices)), self.tasks[common]
        portions = np.searchsorted(self._portions, indices, side="right") - 1
        rows = np.empty_like(indices)
        for portion in np.unique(portions):
            in_portion = portions == portion
            rows[in_portion] = self._rows(portion, indices[in_portion])
        return torch.from_numpy(rows), torch.tensor(self.tasks)[torch.from_numpy(portions)]

    def _portion(self, position: int) -> int:
        return bisect_right(self._portions, position) - 1

    def _rows(self, portion: int, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self.rows[portion][positions - self._portions[portion]].astype(np.int64)


def in_windows(rows: Sequence[Rows], tasks: Sequence[int], size: int) -> Stream:
    """Return a stream of one stage in windows of `size` samples of any tasks. The last window may be smaller."""
    total = sum(len(r) for r in rows)
    ends = [min(start + size, total) for start in range(0, total, size)] or [0]
    return Stream(rows, tasks, ends, stages=[0])


def online(rows: Sequence[Rows], tasks: Sequence[int], rounds: int) -> Stream:
    """Return a stream in which every task is a stage of `rounds` windows of nearly equal size."""
    parts = [part for of_task in rows for part in np.array_split(of_task, rounds)]
    ends = [int(end) for end in np.cumsum([len(part) for part in parts])]
    return Stream(rows, tasks, ends, stages=range(0, len(parts), rounds))
