"""Accuracy on clients' own data, task by task: each client is tested on samples in the proportions of what it holds.

A client's accuracy on task i is sum_c p_k(c | i) a_k(i, c), with a_k(i, c) the accuracy of the model that it is tested
with on the test samples of class c in task i, and p_k(c | i) the part of client k's training samples of task i, over
the whole run, that are of class c (classes without test samples left out). So the whole test set is used and nothing is
drawn. A task's figures are over the clients that hold samples of it, each counted once.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

import numpy as np
from typing_extensions import TypedDict

from raysim.evaluation.scoring import Scores, class_accuracies
from raysim.federation.federation import Federation


class Spread(TypedDict):
    """Of each task: the accuracy of the client that does worst, and the clients' (population) standard deviation."""

    worst: list[float]
    std: list[float]


def own_accuracies(scores: Scores, federation: Federation) -> tuple[dict[str, list[float]], dict[str, Spread]]:
    """Return the clients' mean accuracy by protocol and task, and their spread; fractions.

    The scores are one model's, which all clients are tested with (int64 [tasks, classes]), or each client's own one's
    (int64 [clients, tasks, classes]). Every task has samples that some client holds, as the federation has checked.
    """
    counts = federation.own_counts()
    held = counts.sum(axis=2)
    means: dict[str, list[float]] = {}
    spreads: dict[str, Spread] = {}
    for protocol, right in scores.items():
        found = (counts * class_accuracies(right, federation)).sum(axis=2) / np.maximum(held, 1)
        columns: Sequence[list[float]] = [found[held[:, task] > 0, task].tolist() for task in range(held.shape[1])]
        means[protocol] = [fmean(column) for column in columns]
        spreads[protocol] = {
            "worst": [min(column) for column in columns],
            "std": [pstdev(column) for column in columns],
        }
    return means, spreads


def by_protocol(scores: Mapping[int, Scores]) -> Scores:
    """Return the clients' scores, by their ids, as one array for each protocol: int64 [clients, tasks, classes]."""
    own = [scores[client] for client in sorted(scores)]
    return {protocol: np.stack([one[protocol] for one in own]) for protocol in own[0]}
