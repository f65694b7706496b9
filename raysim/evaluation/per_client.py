"""How well one model serves each client: its accuracy on the client's own mix of tasks and classes.

How evenly a global model serves the clients is how fairness is measured in federated learning (q-FFL: Li et al., Fair
Resource Allocation in Federated Learning, ICLR 2020, arXiv 1905.10497: the variance of the accuracies on the clients'
own test samples, and the worst clients'). Here the test sets are common, so a client's accuracy is

    sum_{t,c} p_k(t, c) a(t, c)

with a(t, c) the accuracy on the test samples of class c in task t, and p_k(t, c) the part of client k's training
samples, over the whole run, that are of task t and class c: what is expected on test samples in the client's own
proportions.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import numpy.typing as npt

from raysim.evaluation.metrics import PROTOCOL_LABELS
from raysim.evaluation.scoring import Scores
from raysim.federation.federation import Federation

Counts = npt.NDArray[np.int64]
ClientSummary = Mapping[str, Any]
"""Every client's accuracy, and their mean, worst and std: of one protocol."""


def client_accuracies(scores: Scores, federation: Federation) -> dict[str, list[float | None]]:
    """Return every client's accuracy by protocol, from scores of all test sets; None where no test sample counts."""
    tested = np.stack([_count_labels_of(federation.dataset.test.y[task.test], federation) for task in federation.tasks])
    own = [_count_samples(federation, client) * (tested > 0) for client in range(len(federation.streams))]
    return {
        protocol: [_weighted_mean(counts, right / np.maximum(tested, 1)) for counts in own]
        for protocol, right in scores.items()
    }


def summarise_clients(scores: Scores, federation: Federation) -> dict[str, ClientSummary]:
    """Return what summary.json says: by protocol, every client's accuracy, and their mean, worst and std.

    Accuracies are fractions, None where no test sample is like the client's own.
    """
    made: dict[str, ClientSummary] = {}
    for protocol, found in client_accuracies(scores, federation).items():
        known = [accuracy for accuracy in found if accuracy is not None]
        made[protocol] = {
            "accuracy": found,
            "mean": fmean(known) if known else None,
            "worst": min(known, default=None),
            "std": pstdev(known) if known else None,
        }
    return made


def describe_clients(protocol: str, found: ClientSummary) -> str:
    """Describe the clients' accuracies under a protocol in a line of text, in %."""
    figures = ((key, found[key]) for key in ("mean", "worst", "std"))
    said = ", ".join(f"{key} {'-' if value is None else format(100 * value, '.1f')}" for key, value in figures)
    return f"accuracy in % on the clients' own classes and tasks, {PROTOCOL_LABELS[protocol]}: {said}"


def _count_samples(federation: Federation, client: int) -> Counts:
    """Return how many training samples a client has: int64 [tasks, classes]."""
    counts = np.zeros((len(federation.tasks), federation.classes), np.int64)
    stream = federation.streams[client]
    for task, rows in zip(stream.tasks, stream.rows, strict=True):
        counts[task] += _count_labels_of(federation.dataset.train.y[rows], federation)
    return counts


def _count_labels_of(labels: npt.NDArray[np.int64], federation: Federation) -> Counts:
    return np.bincount(labels, minlength=federation.classes)


def _weighted_mean(counts: Counts, accuracies: npt.NDArray[np.float64]) -> float | None:
    total = int(counts.sum())
    return float((counts * accuracies).sum() / total) if total else None
