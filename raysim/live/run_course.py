"""The course of a run in a bounded number of points: its rounds, and its evaluations with the accuracy matrix."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from raysim.live.feed import Feed
from raysim.live.round_line import RoundLine

MOST_POINTS = 1000  # of the curves over rounds
MOST_EVALUATIONS = 400
MOST_VALUES = 40_000  # of all evaluations together
MOST_REQUESTS = 100  # of those to forget
MOST_TASKS = 100  # of more, some are shown, evenly spaced

Row = Sequence[float | None]


@dataclass
class _Point:
    """Some rounds in a row as one point: sums over them, and totals since the run's start."""

    rounds: int = 0
    last: int = 0
    so_far: int = 1
    tasks: set[int] = field(default_factory=set)
    losses: float = 0.0
    counted: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    updates: int = 0
    virtual_time: float | None = None

    def join(self, later: "_Point") -> None:
        """Take in a later point; a point's totals are those at its end."""
        self.rounds += later.rounds
        self.losses += later.losses
        self.counted += later.counted
        self.tasks |= later.tasks
        for name in ("last", "so_far", "bytes_up", "bytes_down", "seconds", "updates", "virtual_time"):
            setattr(self, name, getattr(later, name))

    def item(self) -> list[Any]:
        """Return it for the page."""
        loss = _short(self.losses / self.counted) if self.counted else None
        totals = (self.bytes_up, self.bytes_down, _short(self.seconds), self.updates)
        return [self.last, self.so_far, sorted(self.tasks)[:MOST_TASKS], loss, *totals, self.virtual_time]


class Rounds:
    """Loss, bytes, times and the tasks in training over the rounds. A point is of `width` rounds, the last of fewer.

    Items are `[last round, tasks so far, tasks trained on, loss, bytes up, bytes down, seconds, updates, virtual
    time]`. The loss is a mean over the point's rounds. Bytes, seconds and updates are since the run's start.
    """

    def __init__(self) -> None:
        self.feed = Feed()
        self.width = 1
        self._points: list[_Point] = []

    @property
    def last(self) -> int:
        """The last round."""
        return self._points[-1].last if self._points else 0

    def add(self, line: RoundLine) -> None:
        """Add the next round."""
        before = self._points[-1] if self._points else _Point()
        point = _Point(
            1,
            line.round,
            line.so_far,
            set(line.tasks),
            line.loss or 0.0,
            int(line.loss is not None),
            before.bytes_up + line.bytes_up,
            before.bytes_down + line.bytes_down,
            before.seconds + line.seconds,
            before.updates + line.updates,
            line.virtual_time,
        )
        if self._points and before.rounds < self.width:
            before.join(point)
            self.feed.put(len(self._points) - 1, before.item())
            return
        self._points.append(point)
        self.feed.append(point.item())
        if len(self._points) > MOST_POINTS:
            self._halve()

    def _halve(self) -> None:
        """Make points of twice as many rounds."""
        self.width *= 2
        for point, later in zip(self._points[::2], self._points[1::2], strict=False):
            point.join(later)
        self._points = self._points[::2]
        self.feed.replace([point.item() for point in self._points])


class Requests:
    """The last requests to forget. `feed` has `[round, *RequestLine]`."""

    def __init__(self) -> None:
        self.feed = Feed()

    def add(self, line: RoundLine) -> None:
        """Add the requests of a round."""
        if line.forgotten:
            items = [*self.feed.items, *([line.round, *request] for request in line.forgotten)]
            self.feed.replace(items[-MOST_REQUESTS:])


class Evaluations:
    """The evaluations, thinned if there are many, and the rows of the accuracy matrix.

    `feed` has `[round, tasks so far, {protocol: values}, {protocol: [mean so far, forgetting]}, memory by task]`.
    `rows` has the matrix: `[round, {protocol: values}]`, with all digits.

    Attributes:
        shown: the tasks that the items have values of, from 0.
        means: by protocol: the mean and the forgetting of the latest evaluation.
        every: one of this number of evaluations stays, in addition to the rows and the latest one.

    Args:
        tasks: how many there are.
        in_step: whether row t is after task t at all clients. Otherwise forgetting is undefined.
        higher_is_better: for the metric.
        ends: the rounds after which a row is measured; None if that is unknown.
    """

    def __init__(self, tasks: int, in_step: bool, higher_is_better: bool, ends: Sequence[int] | None) -> None:
        self.feed = Feed()
        self.rows = Feed()
        self.shown = list(range(0, tasks, math.ceil(tasks / MOST_TASKS)))
        self.means: dict[str, list[float | None]] = {}
        self._in_step = in_step
        self._sign = 1 if higher_is_better else -1
        self._ends = None if ends is None else set(ends)
        self._best: dict[str, list[float]] = {}  # by protocol: the best of all rows so far on each task
        self.every = 1
        self._kept: list[tuple[int, bool]] = []  # the number of each kept evaluation, and whether it is a row
        self._number = 0
        self._latest: RoundLine | None = None

    def add(self, line: RoundLine) -> None:
        """Add a round's evaluation, if it has one."""
        if line.evaluation is None:
            return
        self._latest = line
        is_row = self._ends is not None and line.round in self._ends
        self.means = {protocol: self._summarise(protocol, row, line) for protocol, row in line.evaluation.items()}
        if is_row:
            self._add_row(line)
        values = {protocol: [_short(v) for v in self._thin(row)] for protocol, row in line.evaluation.items()}
        memory = None if line.memory is None else self._thin(line.memory)
        item = [line.round, line.so_far, values, self.means, memory]
        if self._kept and not self._stays(*self._kept[-1]):  # it was shown only for being the latest
            self._kept.pop()
            self.feed.put(len(self._kept), item)
        else:
            self.feed.append(item)
        self._kept.append((self._number, is_row))
        self._number += 1
        between = len(self._kept) - len(self.rows.items)  # rows stay, so dropping others cannot make room for them
        if between > min(MOST_EVALUATIONS, MOST_VALUES // max(1, len(self.shown) * len(values))):
            self._drop_half()

    def stopped(self, after: int) -> None:
        """Note that a callback ended the run after a round. If it was evaluated, it is a row, even within a task."""
        if self._ends is not None and self._latest is not None and after == self._latest.round not in self._ends:
            self._ends.add(after)
            self._add_row(self._latest)

    def _stays(self, number: int, is_row: bool) -> bool:
        return is_row or number % self.every == 0

    def _drop_half(self) -> None:
        self.every *= 2
        places = [place for place, kept in enumerate(self._kept) if self._stays(*kept) or place + 1 == len(self._kept)]
        self._kept = [self._kept[place] for place in places]
        self.feed.replace([self.feed.items[place] for place in places])

    def _add_row(self, line: RoundLine) -> None:
        evaluation = line.evaluation or {}
        for protocol, row in evaluation.items():
            rising = [-math.inf if value is None else self._sign * value for value in row]
            self._best[protocol] = [*map(max, rising, self._best.get(protocol, rising))]
        self.rows.append([line.round, {protocol: self._thin(row) for protocol, row in evaluation.items()}])

    def _summarise(self, protocol: str, row: Row, line: RoundLine) -> list[float | None]:
        """Return the mean over the tasks so far, and forgetting as accuracy_matrix.py has it: None if undefined.

        Between two rows of the matrix, the evaluation counts as its next row.
        """
        some = row[: line.so_far]
        mean = None if None in some or not some else fmean(value for value in some if value is not None)
        trained, best = len(self.rows.items), self._best.get(protocol, [])
        if not self._in_step or not best or None in row or self._ends is None or len(row) <= trained:
            return [mean, None]
        return [mean, fmean(best[i] - self._sign * (row[i] or 0.0) for i in range(trained))]

    def _thin(self, row: Sequence[Any]) -> list[Any]:
        return [row[task] for task in self.shown if task < len(row)]


def _short(value: float | None) -> float | None:
    """Return a number with as many digits as a curve can show."""
    return None if value is None else float(f"{value:.5g}")
