"""Count right answers, or add up another metric, and compute accuracies by task and by client.

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
from raysim.evaluation.accuracy_matrix import SEEN, protocol_label
from raysim.evaluation.evaluated_model import EvaluatedModel
from raysim.evaluation.metric_sums import Sums, add_exactly, collect_rows, evaluate_metric, merge_sums, stack_sums
from raysim.federation.federation import Federation
from raysim.federation.targets import check_measured
from raysim.models.activations import measure_activations
from raysim.models.flat import FlatModel
from raysim.models.inputs import two_samples
from raysim.models.task_heads import is_task_aware, select_head, tell_task
from raysim.objectives import OfAllSamples
from raysim.system.device import to_device
from raysim.system.errors import Diverged

MOST_SAMPLES = 500
WIDEST = 32 * 2**20  # bytes: glibc returns larger blocks to the kernel, which costs a wide CNN an eighth of its time


def depends_on_tasks_so_far(module: nn.Module, federation: Federation) -> bool:
    """Return whether an evaluation depends on the number of tasks that have begun."""
    return SEEN in federation.protocols or is_task_aware(module)


@dataclass(frozen=True)
class Chunk:
    """A part of one task's test set: test[start:stop]. `so_far` is the number of tasks seen so far; None is all."""

    task: int
    start: int
    stop: int
    so_far: int | None = None


Counts = npt.NDArray[np.int64]
Scores = Mapping[str, Counts | Sums]
"""Right answers by protocol, int64 [tasks, classes] by the sample's class; or the sums or rows of another metric."""


class ClientSummary(TypedDict):
    """Every client's accuracy under one protocol, and their mean, worst and std: fractions, None if undefined."""

    accuracy: list[float | None]
    mean: float | None
    worst: float | None
    std: float | None


class Spread(TypedDict):
    """By task: the accuracy of the worst client, and the clients' population standard deviation."""

    worst: list[float]
    std: list[float]


def chunk_size(widest: int) -> int:
    """Return the number of samples per forward pass, given the bytes of the widest layer's output for a sample.

    It is the same on every host, as a matrix product may round differently with another number of rows.
    """
    return max(1, min(MOST_SAMPLES, WIDEST // max(widest, 1)))


def chunks_for(model: FlatModel, federation: Federation) -> list[Chunk]:
    """Split all test sets into chunks of the size that suits the model."""
    x = two_samples(model.module, federation.shape, federation.vocabulary)
    return split_into_chunks(federation, chunk_size(measure_activations(model, x)[1]))


def split_into_chunks(federation: Federation, size: int) -> list[Chunk]:
    """Split all test sets into chunks of `size` samples. The last one of a task may be smaller."""
    return [
        Chunk(number, start, min(start + size, len(task.test)))
        for number, task in enumerate(federation.tasks)
        for start in range(0, len(task.test), size)
    ]


def score(
    module: nn.Module, dtype: torch.dtype, test: Source, federation: Federation, chunks: Sequence[Chunk], top_k: int = 1
) -> Scores:
    """Count the right answers on these chunks: the label is among the `top_k` classes with the largest logits.

    Another metric is added up exactly instead, or its rows are collected. One answer serves all protocols of a chunk:
    the logits of one forward pass, unless the objective needs several.

    Raises:
        WrongResult: the objective's `measure` returned the wrong shape.
        Diverged: a logit or a measured number is not finite.
    """
    objective, model, finite = federation.objective, EvaluatedModel(module, dtype, federation), list[Tensor]()
    answered: dict[str, list[list[Tensor]]] = {p: [[] for _ in federation.tasks] for p in federation.protocols}
    module.eval()
    with torch.no_grad():
        for chunk in chunks:
            task = federation.tasks[chunk.task]
            select_head(module, chunk.task)
            tell_task(module, None, chunk.so_far or len(federation.tasks))
            rows = torch.from_numpy(task.test[chunk.start : chunk.stop].astype("int64"))
            rows = to_device(rows, test.device)
            labels = test.labels(rows)
            logits = objective.answer(model, model.begin(test.fetch(rows, chunk.task)), labels)
            finite.append(model.all_finite())
            for protocol in federation.protocols:
                among = _admitted(protocol, chunk, federation)
                considered = logits if among is None else _mask_others(logits, list(among))
                if objective.counts:
                    right = (_best(considered, top_k) == labels[:, None]).any(1)
                    outcome = labels.masked_fill(~right, federation.classes)
                else:
                    outcome = objective.measure(objective.predict(considered), labels)
                    check_measured(objective, outcome, len(rows))
                answered[protocol][chunk.task].append(outcome)
    _check_finite(finite, chunks)
    if isinstance(objective, OfAllSamples):
        starts = [[chunk.start for chunk in chunks if chunk.task == task] for task in range(len(federation.tasks))]
        return {protocol: collect_rows(objective, starts, of_tasks) for protocol, of_tasks in answered.items()}
    if not objective.counts:
        return {
            protocol: stack_sums([add_exactly(objective, parts) for parts in of_tasks])
            for protocol, of_tasks in answered.items()
        }
    return {
        protocol: np.stack([_count_labels(outcomes, federation.classes) for outcomes in of_tasks])
        for protocol, of_tasks in answered.items()
    }


def _check_finite(finite: Sequence[Tensor], chunks: Sequence[Chunk]) -> None:
    """Refuse logits that are not finite: their largest one says nothing. `finite` is bool [] for each chunk."""
    if not finite or bool(torch.stack([*finite]).all()):
        return
    task = next(chunk.task for chunk, all_finite in zip(chunks, finite, strict=True) if not all_finite)
    raise Diverged(
        f"the model diverged: found logits that are not finite for test samples of task {task + 1}, allowed: finite "
        "logits; a smaller training.optimizer.lr may help"
    )


def _best(logits: Tensor, count: int) -> Tensor:
    """Return the classes with the largest logits, [n, count]. The lower class wins a tie, unlike in torch.topk."""
    if count == 1:
        return logits.argmax(1, keepdim=True)  # equals the first column of the sort below
    return logits.sort(dim=1, descending=True, stable=True).indices[:, :count]


def _count_labels(answered: Sequence[Tensor], classes: int) -> Counts:
    """Count each label below `classes` (int64 [classes]). Only this waits for a GPU."""
    if not answered:
        return np.zeros(classes, np.int64)
    return np.bincount(torch.cat(list(answered)).cpu().numpy(), minlength=classes + 1)[:classes]


def _admitted(protocol: str, chunk: Chunk, federation: Federation) -> Sequence[int] | None:
    """Return the classes among which a protocol predicts: the task's, those of the tasks seen so far, or None: all."""
    if protocol == "task_il" and federation.objective.classes:
        return federation.tasks[chunk.task].classes
    if protocol == SEEN and chunk.so_far is not None:
        return federation.classes_of(range(chunk.so_far))
    return None


def _mask_others(logits: Tensor, classes: list[int]) -> Tensor:
    """Mask the logits of all other classes."""
    masked = torch.full_like(logits, -torch.inf)
    masked[:, classes] = logits[:, classes]
    return masked


def merge_scores(scores: Sequence[Scores]) -> Scores:
    """Add the scores of several hosts."""
    return {protocol: merge_sums([of_host[protocol] for of_host in scores]) for protocol in scores[0]}


def accuracies(scores: Scores, federation: Federation) -> dict[str, list[float]]:
    """Return the accuracy, or another metric, by protocol and task. Raises RunError if it is undefined."""
    sizes = [len(task.test) for task in federation.tasks]
    if not federation.objective.counts:
        names = [f"task {number}, {task.name}" for number, task in enumerate(federation.tasks, 1)]
        return {
            protocol: [*map(partial(evaluate_metric, federation.objective), sums.tolist(), sizes, names)]
            for protocol, sums in scores.items()
        }
    return {
        protocol: [right / size for right, size in zip(counts.sum(axis=1).tolist(), sizes, strict=True)]
        for protocol, counts in scores.items()
    }


def client_accuracies(scores: Scores, federation: Federation) -> dict[str, list[float | None]]:
    """Return each client's accuracy on its mix of tasks and classes, by protocol; None if no sample counts.

    Fairness in federated learning is the spread of the clients' accuracies and their minimum. The measure of q-FFL uses
    the clients' test samples (Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020, arXiv 1905.10497).
    Here the test sets are common, so a client's accuracy is

        sum_{t,c} p_k(t, c) a(t, c)

    The accuracy a(t, c) is that on the test samples of class c in task t. The weight p_k(t, c) is the fraction of task
    t and class c in client k's training samples of the whole run. This is the expected accuracy on test samples in the
    client's proportions. The scores are of one model, or of each client's personalized model: int64 [clients, tasks,
    classes].
    """
    class_counts, result = federation.class_counts(), dict[str, list[float | None]]()
    for protocol, right in scores.items():
        by_class = np.broadcast_to(class_accuracies(right, federation), class_counts.shape)
        result[protocol] = [
            _weighted_mean(counts, of_client) for counts, of_client in zip(class_counts, by_class, strict=True)
        ]
    return result


def class_accuracies(right: Counts, federation: Federation) -> npt.NDArray[np.float64]:
    """Return the accuracy by task and class; 0 without test samples. Both arrays are [..., tasks, classes]."""
    labels = federation.dataset.test.y
    sizes = np.stack([np.bincount(labels[task.test], minlength=federation.classes) for task in federation.tasks])
    return right / np.maximum(sizes, 1)


def mean_client_accuracies(scores: Scores, federation: Federation) -> tuple[dict[str, list[float]], dict[str, Spread]]:
    """Return the clients' mean accuracy by protocol and task, and their spread; fractions.

    A client's accuracy on task i is sum_c p_k(c | i) a_k(i, c). The weight p_k(c | i) is the fraction of class c in
    client k's training samples of task i in the whole run. Classes without test samples are omitted. So the whole test
    set is used, and nothing is drawn. A task's mean and spread are over the clients that hold samples of it.

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


def summarise_clients(scores: Scores, federation: Federation) -> dict[str, ClientSummary]:
    """Return the per-client entries of summary.json, by protocol.

    Accuracies are fractions, or None if no test sample has a class of the client. Class-IL among the seen classes is
    omitted: at the end of a run it is class-IL.
    """
    summaries: dict[str, ClientSummary] = {}
    scores = {protocol: right for protocol, right in scores.items() if protocol != SEEN}
    for protocol, of_clients in client_accuracies(scores, federation).items():
        defined = [accuracy for accuracy in of_clients if accuracy is not None]
        summaries[protocol] = {
            "accuracy": of_clients,
            "mean": fmean(defined) if defined else None,
            "worst": min(defined, default=None),
            "std": pstdev(defined) if defined else None,
        }
    return summaries


def describe_clients(protocol: str, summary: ClientSummary, top_k: int = 1) -> str:
    """Return a line of text with the clients' accuracies under a protocol, in %."""
    figures = ((key, summary[key]) for key in ("mean", "worst", "std"))
    listed = ", ".join(f"{key} {'-' if value is None else format(100 * value, '.1f')}" for key, value in figures)
    return f"accuracy in % on the clients' own classes and tasks, {protocol_label(protocol, top_k)}: {listed}"


def _weighted_mean(counts: Counts, accuracies: npt.NDArray[np.float64]) -> float | None:
    total = int(counts.sum())
    return float((counts * accuracies).sum() / total) if total else None
