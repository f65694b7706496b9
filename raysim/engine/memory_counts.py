"""Counts of the samples in the memories of a host's clients."""

import numpy as np

from raysim.engine.host import ClientHost
from raysim.evaluation.scoring import Counts


def count_remembered(host: ClientHost) -> Counts:
    """Return how many samples of each task and class the memories of this host's clients hold.

    int64 [tasks, classes]. There is one column if the targets are not labels.
    """
    federation = host.federation
    columns = federation.classes if federation.objective.classes else 1
    counts = np.zeros((len(federation.tasks), columns), np.int64)
    for client in host.clients.values():
        if client.memory is not None:
            rows, tasks = client.stream.locate(client.memory.entries().positions)
            np.add.at(counts, (np.asarray(tasks), client.read_labels(rows)), 1)
    return counts
