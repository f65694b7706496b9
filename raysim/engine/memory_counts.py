"""What the memories of a host's clients hold, counted by task and class."""

import numpy as np

from raysim.engine.host import ClientHost
from raysim.evaluation.scoring import Counts


def count_remembered(host: ClientHost) -> Counts:
    """Return how many samples of each class the memories hold of each task, all clients of the host together.

    int64 [tasks, classes]; where targets are no labels there is one column. The task is that of the stream's sample,
    and what a memory holds is as after all orders that its client was given.
    """
    federation = host.federation
    columns = federation.classes if federation.objective.classes else 1
    counts = np.zeros((len(federation.tasks), columns), np.int64)
    for client in host.clients.values():
        if client.memory is not None:
            rows, tasks = client.stream.locate(client.memory.entries().positions)
            np.add.at(counts, (np.asarray(tasks), client.read_labels(rows)), 1)
    return counts
