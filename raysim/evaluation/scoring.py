"""Right answers, counted: an evaluation is split into chunks, so that hosts can share it without changing a bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from raysim.data.pixels import Source
from raysim.federation.federation import Federation
from raysim.system.device import to_device

CHUNK = 500  # samples: fixed, as a matrix product may round differently with another number of rows


@dataclass(frozen=True)
class Chunk:
    """A part of one task's test set: test[start : start + CHUNK]."""

    task: int
    start: int


Scores = Mapping[str, npt.NDArray[np.int64]]
"""Right answers by protocol: int64 [tasks, classes], by the class that the sample has."""


def split_into_chunks(federation: Federation) -> list[Chunk]:
    """Split all test sets."""
    return [
        Chunk(number, start)
        for number, task in enumerate(federation.tasks)
        for start in range(0, len(task.test), CHUNK)
    ]


def score(
    module: nn.Module, dtype: torch.dtype, test: Source, federation: Federation, parts: Sequence[Chunk]
) -> Scores:
    """Count the right answers on these parts. One forward pass serves all protocols of a part."""
    answered: dict[str, list[list[Tensor]]] = {p: [[] for _ in federation.tasks] for p in federation.protocols}
    module.eval()
    with torch.no_grad():
        for part in parts:
            task = federation.tasks[part.task]
            rows = torch.from_numpy(task.test[part.start : part.start + CHUNK].astype("int64"))
            rows = to_device(rows, test.device)
            logits = module(test.fetch(rows, part.task).to(dtype))
            labels = test.labels(rows)
            for protocol, seen in _views(logits, task.classes, federation):
                wrong = seen.argmax(1) != labels
                answered[protocol][part.task].append(labels.masked_fill(wrong, federation.classes))
    return {
        protocol: np.stack([_count_labels(parts, federation.classes) for parts in of_tasks])
        for protocol, of_tasks in answered.items()
    }


def _count_labels(answered: Sequence[Tensor], classes: int) -> npt.NDArray[np.int64]:
    """Count each label below `classes` (int64 [classes]). Only this waits for a GPU."""
    if not answered:
        return np.zeros(classes, np.int64)
    return np.bincount(torch.cat(list(answered)).cpu().numpy(), minlength=classes + 1)[:classes]


def zero_scores(federation: Federation) -> Scores:
    """Return the scores where no answer is right."""
    shape = (len(federation.tasks), federation.classes)
    return {protocol: np.zeros(shape, np.int64) for protocol in federation.protocols}


def _views(logits: Tensor, classes: Sequence[int], federation: Federation) -> Iterator[tuple[str, Tensor]]:
    """Yield the logits as each protocol sees them: task-IL knows the task, so the other tasks' logits are left out."""
    for protocol in federation.protocols:
        if protocol == "task_il":
            known = torch.full_like(logits, -torch.inf)
            known[:, list(classes)] = logits[:, list(classes)]
            yield protocol, known
        else:
            yield protocol, logits


def merge_scores(scores: Sequence[Scores]) -> Scores:
    """Add what several hosts counted."""
    return {protocol: np.sum([counted[protocol] for counted in scores], axis=0) for protocol in scores[0]}


def accuracies(scores: Scores, federation: Federation) -> dict[str, list[float]]:
    """Return the fraction of right answers by protocol and task."""
    sizes = [len(task.test) for task in federation.tasks]
    return {
        protocol: [right / size for right, size in zip(by_task(counts), sizes, strict=True)]
        for protocol, counts in scores.items()
    }


def by_task(counts: npt.NDArray[np.int64]) -> list[int]:
    """Return how many answers are right on every task's test set."""
    return [int(right) for right in counts.sum(axis=1)]
