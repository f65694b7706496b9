"""The cells of the stream's picture: which samples a client has in which rounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import numpy.typing as npt

from raysim.federation.federation import Federation

MOST_COLUMNS = 140  # the most rounds with a column each; of more, several rounds share a column
MOST_ROUNDS = 20_000  # rounds that are looked at one by one
MOST_CELLS = 60  # windows of a client; of more, one is looked at for each column
MOST_IN_OVERVIEW = 1000  # clients; of more, this number is counted, evenly spaced


@dataclass(frozen=True)
class StreamCell:
    """The samples that a client has in consecutive rounds."""

    first: int
    """The first of the rounds, from 1."""
    last: int
    window: int
    """The window of the client's stream; the first one, if the rounds have several."""
    counts: Mapping[int, int]
    """The number of samples in that window by task, from 0. The tasks are ascending."""

    @property
    def tasks(self) -> tuple[int, ...]:
        """The tasks of the samples."""
        return tuple(self.counts)


@dataclass(frozen=True)
class Overview:
    """How many clients are at which task."""

    rounds: Sequence[int]
    """The rounds that are counted, ascending."""
    counts: npt.NDArray[np.int64]
    """The clients by task and round, [tasks, rounds]. A window of several tasks counts as the one with most samples."""
    clients: int
    """The number of clients that were counted, present or not."""


def spread_evenly(count: int, most: int) -> list[int]:
    """Return the numbers below `count`, or `most` of them, evenly spaced."""
    return [*range(count)] if count <= most else [number * count // most for number in range(most)]


def rounds_per_column(rounds: int) -> int:
    """Return how many rounds are one column."""
    return -(-rounds // MOST_COLUMNS)


def find_cells(federation: Federation, client: int) -> tuple[list[StreamCell], bool]:
    """Return a client's cells in order, and whether they are exact.

    They are exact if every window is a cell. Otherwise a column of rounds has the window of its first round, and
    columns with the same tasks are one cell.
    """
    rounds = federation.availability.rounds
    if rounds <= MOST_ROUNDS:
        exact = [*_group(federation, client, range(1, rounds + 1))]
        if len(exact) <= MOST_CELLS:
            return exact, True
    columns = range(1, rounds + 1, rounds_per_column(rounds))
    return _join(_group(federation, client, columns)), False


def _group(federation: Federation, client: int, begins: range) -> Iterator[StreamCell]:
    """Yield a cell for each run of columns with the same window. Columns begin with these rounds."""
    times, stream = federation.availability, federation.streams[client]
    column = 0
    for window, alike in groupby(times.window(client, round) for round in begins):
        first, column = begins[column], column + len([*alike])
        last = begins[column] - 1 if column < len(begins) else times.rounds
        if window is not None:
            yield StreamCell(first, last, window, dict(sorted(stream.counts_in(window, window + 1).items())))


def _join(cells: Iterator[StreamCell]) -> list[StreamCell]:
    """Return the cells; neighbors with the same tasks are one, with the window of the first of them."""
    joined: list[StreamCell] = []
    for cell in cells:
        if joined and joined[-1].last + 1 == cell.first and joined[-1].tasks == cell.tasks:
            joined[-1] = replace(joined[-1], last=cell.last)
        else:
            joined.append(cell)
    return joined


def count_clients(federation: Federation, columns: int) -> Overview:
    """Return the number of clients by task, in at most `columns` evenly spaced rounds."""
    times = federation.availability
    rounds = [1 + number for number in spread_evenly(times.rounds, columns)]
    clients = spread_evenly(len(federation.streams), MOST_IN_OVERVIEW)
    counts = np.zeros((len(federation.tasks), len(rounds)), np.int64)
    for client in clients:
        stream = federation.streams[client]
        main: dict[int, int] = {}  # the task of each window
        for column, round in enumerate(rounds):
            window = times.window(client, round)
            if window is None:
                continue
            if window not in main:
                found = stream.counts_in(window, window + 1)
                main[window] = max(found, key=found.__getitem__)
            counts[main[window], column] += 1
    return Overview(rounds, counts, len(clients))
