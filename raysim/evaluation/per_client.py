"""Accuracy per client and task: each client is tested on the class proportions of its training data.

A client's accuracy on task i is sum_c p_k(c | i) a_k(i, c). a_k(i, c) is the accuracy of the client's tested model on
the test samples of class c in task i. p_k(c | i) is the fraction of class c in client k's training samples of task i
in the whole run. Classes without test samples are omitted. So the whole test set is used, and nothing is drawn.
A task's mean and spread are over the clients that hold samples of it, each counted once.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

import numpy as np
from typing_extensions import TypedDict

from raysim.evaluation.scoring import Scores, class_accuracies
from raysim.federation.federation import Federation


class Spread(TypedDict):
    """By task: the accuracy of the worst client, and the clients' population standard deviation."""

    worst: list[float]
    std: list[float]


def mean_client_accuracies(scores: Scores, federation: Federation) -> tuple[dict[str, list[float]], dict[str, Spread]]:
    """Return the clients' mean accuracy by protocol and task, and their spread; fractions.

    The scores are of one model for all clients (int64 [tasks, classes]), or of each client's personalized model (int64
    [clients, tasks, classes]). Some client holds samples of every task: the federation checks this.
    """
    counts = federation.class_counts()
    held = counts.sum(axis=2)
    means: dict[str, list[float]] = {}
    spreads: dict[str, Spread] = {}
    for protocol, right in scores.items():
        of_clients = (counts * class_accuracies(right, federation)).sum(axis=2) / np.maximum(held, 1)
        columns: Sequence[list[float]] = [of_clients[held[:, task] > 0, task].tolist() for task in range(held.shape[1])]
        means[protocol] = [fmean(column) for column in columns]
        spreads[protocol] = {
            "worst": [min(column) for column in columns],
            "std": [pstdev(column) for column in columns],
        }
    return means, spreads


def by_protocol(scores: Mapping[int, Scores]) -> Scores:
    """Return scores by client id as one array per protocol: int64 [clients, tasks, classes]."""
    in_order = [scores[client] for client in sorted(scores)]
    return {protocol: np.stack([of_client[protocol] for of_client in in_order]) for protocol in in_order[0]}
