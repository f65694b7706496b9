"""Right answers, counted, or what else a metric adds up, and the accuracies that they make, by task and by client.

An evaluation is split into chunks, so that hosts can share it without changing a bit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, pstdev

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import TypedDict

from raysim.data.pixels import Source
from raysim.evaluation.measuring import Sums, add_exactly, evaluate_metric, merge_sums, stack_sums
from raysim.evaluation.metrics import protocol_label
from raysim.federation.federation import Federation
from raysim.federation.targets import check_measured
from raysim.models.activations import measure_activations
from raysim.models.flat import FlatModel
from raysim.models.inputs import as_input, two_samples
from raysim.models.task_heads import turn_to
from raysim.system.device import to_device

MOST_SAMPLES = 500
WIDEST = 32 * 2**20  # bytes: glibc returns larger blocks to the kernel, which cost a wide CNN an eighth of its time


@dataclass(frozen=True)
class Chunk:
    """A part of one task's test set: test[start:stop]."""

    task: int
    start: int
    stop: int


Counts = npt.NDArray[np.int64]
Scores = Mapping[str, Counts | Sums]
"""Right answers by protocol: int64 [tasks, classes], by the class that the sample has; or another metric's sums."""


class ClientSummary(TypedDict):
    """Every client's accuracy, and their mean, worst and std, of one protocol: fractions, None where undefined."""

    accuracy: list[float | None]
    mean: float | None
    worst: float | None
    std: float | None


def chunk_size(widest: int) -> int:
    """Return how many samples pass a model at a time, of whose layers' outputs the largest has so many bytes a sample.

    The same for a model wherever it is, as a matrix product may round differently with another number of rows.
    """
    return max(1, min(MOST_SAMPLES, WIDEST // max(widest, 1)))


def chunks_for(model: FlatModel, federation: Federation) -> list[Chunk]:
    """Split all test sets into chunks of the size that suits the model."""
    x = two_samples(model.module, federation.shape, federation.vocabulary)
    return split_into_chunks(federation, chunk_size(measure_activations(model, x)[1]))


def split_into_chunks(federation: Federation, size: int) -> list[Chunk]:
    """Split all test sets into chunks of so many samples; the last of a task may be smaller."""
    return [
        Chunk(number, start, min(start + size, len(task.test)))
        for number, task in enumerate(federation.tasks)
        for start in range(0, len(task.test), size)
    ]


def score(
    module: nn.Module, dtype: torch.dtype, test: Source, federation: Federation, parts: Sequence[Chunk], top_k: int = 1
) -> Scores:
    """Count the right answers on these parts: where the label is among the `top_k` classes with the largest logits.

    Where the objective's metric is another, what it adds up is added exactly. One forward pass serves all protocols of
    a part. Raises WrongResult and RunError: an objective of the user's own measured something else than it must.
    """
    objective = federation.objective
    answered: dict[str, list[list[Tensor]]] = {p: [[] for _ in federation.tasks] for p in federation.protocols}
    module.eval()
    with torch.no_grad():
        for part in parts:
            task = federation.tasks[part.task]
            turn_to(module, part.task)
            rows = torch.from_numpy(task.test[part.start : part.stop].astype("int64"))
            rows = to_device(rows, test.device)
            logits = module(as_input(test.fetch(rows, part.task), dtype))
            labels = test.labels(rows)
            for protocol in federation.protocols:
                by_task = protocol == "task_il" and objective.classes
                seen = _leave_out_others(logits, list(task.classes)) if by_task else logits
                if objective.counts:
                    right = (_best(seen, top_k) == labels[:, None]).any(1)
                    found = labels.masked_fill(~right, federation.classes)
                else:
                    found = objective.measure(objective.predict(seen), labels)
                    check_measured(objective, found, len(rows))
                answered[protocol][part.task].append(found)
    if not objective.counts:
        return {protocol: stack_sums([*map(add_exactly, of_tasks)]) for protocol, of_tasks in answered.items()}
    return {
        protocol: np.stack([_count_labels(parts, federation.classes) for parts in of_tasks])
        for protocol, of_tasks in answered.items()
    }


def _best(logits: Tensor, count: int) -> Tensor:
    """Return the classes with the largest logits, [n, count]; of equal ones the lower class comes first.

    torch.topk leaves open which of equal ones it returns.
    """
    if count == 1:
        return logits.argmax(1, keepdim=True)  # the first column of the sort below
    return logits.sort(dim=1, descending=True, stable=True).indices[:, :count]


def _count_labels(answered: Sequence[Tensor], classes: int) -> Counts:
    """Count each label below `classes` (int64 [classes]). Only this waits for a GPU."""
    if not answered:
        return np.zeros(classes, np.int64)
    return np.bincount(torch.cat(list(answered)).cpu().numpy(), minlength=classes + 1)[:classes]


def zero_scores(federation: Federation) -> Scores:
    """Return the scores where no answer is right, and nothing was measured."""
    shape = (len(federation.tasks), federation.classes if federation.objective.counts else 0)
    return {protocol: np.zeros(shape, np.int64) for protocol in federation.protocols}


def _leave_out_others(logits: Tensor, classes: list[int]) -> Tensor:
    """Leave out the other tasks' logits, as task-IL knows the task."""
    known = torch.full_like(logits, -torch.inf)
    known[:, classes] = logits[:, classes]
    return known


def merge_scores(scores: Sequence[Scores]) -> Scores:
    """Add what several hosts counted."""
    return {protocol: merge_sums([found[protocol] for found in scores]) for protocol in scores[0]}


def accuracies(scores: Scores, federation: Federation) -> dict[str, list[float]]:
    """Return the fraction of right answers, or the metric, by protocol and task. Raises RunError: it is not defined."""
    sizes = [len(task.test) for task in federation.tasks]
    if not federation.objective.counts:
        names = [f"task {number}, {task.name}" for number, task in enumerate(federation.tasks, 1)]
        return {
            protocol: [*map(partial(evaluate_metric, federation.objective), found.tolist(), sizes, names)]
            for protocol, found in scores.items()
        }
    return {
        protocol: [right / size for right, size in zip(counts.sum(axis=1).tolist(), sizes, strict=True)]
        for protocol, counts in scores.items()
    }


def client_accuracies(scores: Scores, federation: Federation) -> dict[str, list[float | None]]:
    """Return each client's accuracy on its own mix of tasks and classes, by protocol; None where no sample counts.

    How evenly a global model serves the clients is how fairness is measured in federated learning (q-FFL: Li et al.,
    Fair Resource Allocation in Federated Learning, ICLR 2020, arXiv 1905.10497: the variance of the accuracies on the
    clients' own test samples, and the worst clients'). Here the test sets are common, so a client's accuracy is

        sum_{t,c} p_k(t, c) a(t, c)

    with a(t, c) the accuracy on the test samples of class c in task t, and p_k(t, c) the part of client k's training
    samples, over the whole run, that are of task t and class c: what is expected on test samples in the client's own
    proportions. The scores are one model's, or each client's own one's: int64 [clients, tasks, classes].
    """
    own, made = federation.own_counts(), dict[str, list[float | None]]()
    for protocol, right in scores.items():
        found = np.broadcast_to(class_accuracies(right, federation), own.shape)
        made[protocol] = [_weighted_mean(counts, of_client) for counts, of_client in zip(own, found, strict=True)]
    return made


def class_accuracies(right: Counts, federation: Federation) -> npt.NDArray[np.float64]:
    """Return the accuracy on each class of each task, 0 where it has no test samples, given the right answers.

    Both are [..., tasks, classes].
    """
    labels = federation.dataset.test.y
    tested = np.stack([np.bincount(labels[task.test], minlength=federation.classes) for task in federation.tasks])
    return right / np.maximum(tested, 1)


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


def describe_clients(protocol: str, found: ClientSummary, top_k: int = 1) -> str:
    """Describe the clients' accuracies under a protocol in a line of text, in %."""
    figures = ((key, found[key]) for key in ("mean", "worst", "std"))
    said = ", ".join(f"{key} {'-' if value is None else format(100 * value, '.1f')}" for key, value in figures)
    return f"accuracy in % on the clients' own classes and tasks, {protocol_label(protocol, top_k)}: {said}"


def _weighted_mean(counts: Counts, accuracies: npt.NDArray[np.float64]) -> float | None:
    total = int(counts.sum())
    return float((counts * accuracies).sum() / total) if total else None
