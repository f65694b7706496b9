"""Blurry task boundaries: a fraction of each task's samples arrives during the neighboring tasks."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from raysim.federation.stream import Rows, Stream, in_windows

Parts = Sequence[tuple[int, Rows]]
"""Samples that arrive together: pairs of a task and rows of it."""


def blur_boundaries(
    rows: Sequence[Rows], tasks: Sequence[int], blur: float, draws: np.random.Generator, nearest: bool = False
) -> list[Parts]:
    """Return the samples that arrive during each task, after an exchange between neighboring tasks.

    At each boundary, round(blur / 2 * n) of a task's n samples arrive during the other task, drawn without replacement.
    So a fraction `blur` of an inner task's samples does not arrive during that task. A client without samples of a task
    has no boundary with it. (Aljundi et al., Gradient based sample selection, NeurIPS 2019, arXiv 1903.08671, swap a
    fraction with the other tasks.)

    With `nearest`, rows are in the order of a column, and drift is gradual. The samples are then drawn from the
    fraction `blur` of the task that is nearest to the boundary, so half of these change sides.
    """
    arrivals: list[list[tuple[int, Rows]]] = [[] for _ in tasks]
    for index, (task, rows_of_task) in enumerate(zip(tasks, rows, strict=True)):
        moved = round(blur / 2 * len(rows_of_task))
        choose = _choose_nearest if nearest else _choose
        to_previous, to_next, stays = choose(len(rows_of_task), moved, draws)
        for neighbor, part in ((index - 1, to_previous), (index + 1, to_next)):
            if 0 <= neighbor < len(rows) and len(rows[neighbor]):
                arrivals[neighbor].append((task, rows_of_task[np.sort(part)]))
            else:
                stays = np.concatenate([stays, part])
        arrivals[index].append((task, rows_of_task[np.sort(stays)]))
    return [*arrivals]


def _choose(count: int, moved: int, draws: np.random.Generator) -> Sequence[npt.NDArray[np.int64]]:
    """Return the indices that move to the previous task, those that move to the next one, and those that stay."""
    return np.split(draws.permutation(count), [moved, 2 * moved])


def _choose_nearest(count: int, moved: int, draws: np.random.Generator) -> Sequence[npt.NDArray[np.int64]]:
    """Do the same with indices that are drawn from the first and from the last `2 * moved` ones."""
    first = draws.permutation(min(2 * moved, count))[:moved]
    rest = np.setdiff1d(np.arange(count), first)
    last = draws.permutation(rest[rest >= count - 2 * moved])[:moved]
    return first, last, np.setdiff1d(rest, last)


def in_stages(arrivals: Sequence[Parts], stage_tasks: Sequence[int], pieces: int = 1) -> Stream:
    """Return a stream of a stage for each of these tasks, in `pieces` windows each.

    Windows have equal shares of every part.
    """
    windows = [window for parts in arrivals for window in _cut(parts, pieces)]
    tasks, rows = zip(*(part for window in windows for part in window), strict=True)
    ends = np.cumsum([sum(len(part) for _, part in window) for window in windows])
    return Stream(rows, tasks, ends.tolist(), range(0, len(windows), pieces), stage_tasks)


def in_mixed_windows(arrivals: Sequence[Parts], size: int) -> Stream:
    """Return a stream in windows of `size` samples, as `in_windows` does, with the parts of each task mixed evenly."""
    pieces = [piece for parts in arrivals for piece in _cut(parts, -(-sum(len(part) for _, part in parts) // size))]
    tasks, rows = zip(*(part for piece in pieces for part in piece), strict=True)
    return in_windows(rows, tasks, size)


def _cut(parts: Parts, pieces: int) -> list[Parts]:
    """Cut into pieces, at least one. Their sizes differ by at most one, and each has its share of every part.

    The samples of a part are spaced evenly over the time of all, which is then divided.
    """
    times = np.concatenate([(np.arange(len(rows)) + 0.5) / max(len(rows), 1) for _, rows in parts])
    ends = np.cumsum([len(rows) for _, rows in parts])
    cut: list[Parts] = []
    for piece in np.array_split(np.argsort(times, kind="stable"), max(pieces, 1)):
        indices = np.sort(piece)  # of the parts' rows, one part after the other
        of_parts = np.split(indices, np.searchsorted(indices, ends[:-1]))
        starts = ends - [len(rows) for _, rows in parts]
        cut.append(
            [(task, rows[index - start]) for (task, rows), index, start in zip(parts, of_parts, starts, strict=True)]
        )
    return cut
