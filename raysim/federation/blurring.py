"""Blurred task boundaries: a share of each task's samples comes in the time of its neighbours."""

from collections.abc import Sequence

import numpy as np

from raysim.federation.stream import Rows, Stream, in_windows

Parts = Sequence[tuple[int, Rows]]
"""Samples that come together: tasks, and rows of them."""


def blur_boundaries(rows: Sequence[Rows], tasks: Sequence[int], blur: float, draws: np.random.Generator) -> list[Parts]:
    """Return what comes in the time of each task, where samples change places with those of the neighbours.

    At each boundary round(blur / 2 * n) of the n samples of either task, drawn without replacement, come in the other's
    time, so that `blur` of an inner task's samples do not come in its own. A client that has no samples of a task has
    no boundary with it. (Aljundi et al., Gradient based sample selection, NeurIPS 2019, arXiv 1903.08671: a share is
    swapped with the other tasks.)
    """
    times: list[list[tuple[int, Rows]]] = [[] for _ in tasks]
    for place, (task, own) in enumerate(zip(tasks, rows, strict=True)):
        away = round(blur / 2 * len(own))
        early, late, stays = np.split(draws.permutation(len(own)), [away, 2 * away])
        for neighbour, part in ((place - 1, early), (place + 1, late)):
            if 0 <= neighbour < len(rows) and len(rows[neighbour]):
                times[neighbour].append((task, own[np.sort(part)]))
            else:
                stays = np.concatenate([stays, part])
        times[place].append((task, own[np.sort(stays)]))
    return [*times]


def in_times(times: Sequence[Parts], pieces: int = 1) -> Stream:
    """Return a stream in which what comes in the time of a task arrives in so many windows, each with as much of every
    part; such a time is a stage.
    """
    windows = [window for parts in times for window in _cut(parts, pieces)]
    tasks, rows = zip(*(part for window in windows for part in window), strict=True)
    ends = np.cumsum([sum(len(part) for _, part in window) for window in windows])
    return Stream(rows, tasks, ends.tolist(), range(0, len(windows), pieces))


def in_windows_of(times: Sequence[Parts], size: int) -> Stream:
    """Return a stream in windows of `size` samples, as `in_windows`; what comes together is mixed evenly."""
    pieces = [piece for parts in times for piece in _cut(parts, -(-sum(len(part) for _, part in parts) // size))]
    tasks, rows = zip(*(part for piece in pieces for part in piece), strict=True)
    return in_windows(rows, tasks, size)


def _cut(parts: Parts, pieces: int) -> list[Parts]:
    """Cut into pieces, at least one, with as much of every part."""
    cut = [np.array_split(rows, max(pieces, 1)) for _, rows in parts]
    return [[(task, piece) for (task, _), piece in zip(parts, of, strict=True)] for of in zip(*cut, strict=True)]
