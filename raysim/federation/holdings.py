"""The samples of each client by task and class, and its tasks by round. They are counted before a run and recorded."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from raysim.federation.assignment import NOTHING
from raysim.federation.federation import Federation

Counts = npt.NDArray[np.int64]

MOST_CLIENTS = 200  # with more clients, this number is counted, evenly spaced by id


@dataclass(frozen=True)
class Holdings:
    """The samples and the task changes of some clients. Row k of each field is of client `clients[k]`."""

    clients: Sequence[int]
    by_task: Sequence[Sequence[int]]
    """by_task[k][i]: the number of training samples of task i."""
    by_class: Sequence[Sequence[int]]
    """by_class[k][c]: the number of different samples of class c over all tasks. Empty if targets are not classes."""
    at_tasks: Sequence[Sequence[tuple[int, int]]]
    """at_tasks[k]: pairs of a round and the client's task from then on, both from 1; task 0 means absent. Empty if all
    clients change their tasks in the same rounds."""
    rows: Sequence[int] = ()
    """The rounds after which a row of the accuracy matrix is measured; the last one is the run's last. Empty in files
    of older versions."""


def find_holdings(federation: Federation, timeline: Counts | None) -> Holdings | None:
    """Return the holdings of at most MOST_CLIENTS clients, or None with a custom stream.

    `timeline` is as in Availability, or None if all clients change their tasks in the same rounds.
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
        federation.availability.rows,
    )


def count_by_task(federation: Federation, clients: Sequence[int]) -> Counts:
    """Return the number of samples of these clients by task: [clients, tasks]."""
    counts_of_clients = [stream.counts_in(0, stream.windows) for stream in map(federation.streams.__getitem__, clients)]
    return np.asarray([[counts.get(task, 0) for task in range(len(federation.tasks))] for counts in counts_of_clients])


def count_by_class(federation: Federation, clients: Sequence[int]) -> Counts:
    """Return the number of samples of these clients by class: [clients, classes]. A row of two tasks counts once."""
    labels = federation.dataset.train.y
    rows = [np.unique(np.concatenate([NOTHING, *federation.streams[client].rows])) for client in clients]
    return np.asarray([np.bincount(labels[rows_of_client], minlength=federation.classes) for rows_of_client in rows])


def _changes(tasks: Sequence[int]) -> list[tuple[int, int]]:
    """Return a row of the timeline as pairs of a round and the task from then on, both from 1."""
    changes, round = [], 1
    for task, run_of_rounds in groupby(tasks):
        changes.append((round, task + 1))
        round += len(list(run_of_rounds))
    return changes
