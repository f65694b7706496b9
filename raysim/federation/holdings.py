"""Which client holds how many samples of what, and which task it is at when: counted before a run, for its records."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from raysim.federation.assignment import NOTHING
from raysim.federation.federation import Federation

Counts = npt.NDArray[np.int64]

MOST_CLIENTS = 200  # of more, so many are counted, evenly spaced by their ids


@dataclass(frozen=True)
class Holdings:
    """What some clients hold, row by row: client `clients[k]` has `by_task[k][i]` training samples of task i and
    `by_class[k][c]` different ones of class c over all tasks, or nothing where targets are no classes.

    `at_tasks[k]` are pairs of a round and the task that the client is at from then on (both from 1; 0 where it is not
    there); nothing where all change their tasks at once.
    """

    clients: Sequence[int]
    by_task: Sequence[Sequence[int]]
    by_class: Sequence[Sequence[int]]
    at_tasks: Sequence[Sequence[tuple[int, int]]]


def find_holdings(federation: Federation, timeline: Counts | None) -> Holdings | None:
    """Return what at most MOST_CLIENTS clients hold; None where they open streams of their own.

    timeline: as Availability's; None where all clients change their tasks at once.
    """
    if federation.opener is not None:
        return None
    count = len(federation.streams)
    clients = [*range(count)] if count <= MOST_CLIENTS else [k * count // MOST_CLIENTS for k in range(MOST_CLIENTS)]
    return Holdings(
        clients,
        count_by_task(federation, clients).tolist(),
        count_by_class(federation, clients).tolist() if federation.objective.classes else [],
        [] if timeline is None else [_changes(row) for row in timeline[clients].tolist()],
    )


def count_by_task(federation: Federation, clients: Sequence[int]) -> Counts:
    """Return the samples of these clients by task: [clients, tasks]."""
    of_tasks = [stream.counts_in(0, stream.windows) for stream in map(federation.streams.__getitem__, clients)]
    return np.asarray([[found.get(task, 0) for task in range(len(federation.tasks))] for found in of_tasks])


def count_by_class(federation: Federation, clients: Sequence[int]) -> Counts:
    """Return the samples of these clients by class, where a row that tasks share counts once: [clients, classes]."""
    labels = federation.dataset.train.y
    rows = [np.unique(np.concatenate([NOTHING, *federation.streams[client].rows])) for client in clients]
    return np.asarray([np.bincount(labels[own], minlength=federation.classes) for own in rows])


def _changes(tasks: Sequence[int]) -> list[tuple[int, int]]:
    """Return a row of the timeline as pairs of a round and the task from then on, both from 1."""
    found, round = [], 1
    for task, same in groupby(tasks):
        found.append((round, task + 1))
        round += len(list(same))
    return found
