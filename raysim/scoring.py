"""Counting right answers: an evaluation is cut into chunks, so that hosts can share it without changing a bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raysim.data.pixels import Source
from raysim.device import sent
from raysim.federation import Federation

NONE = torch.zeros((), dtype=torch.int64)
CHUNK = 500  # samples: fixed, as a matrix product may round differently with another number of rows


@dataclass(frozen=True)
class Chunk:
    """A part of one task's test set: test[start : start + CHUNK]."""

    task: int
    start: int


Scores = Mapping[str, Sequence[int]]
"""Right answers by protocol and task."""


def chunks(federation: Federation) -> list[Chunk]:
    """Cut all test sets."""
    return [
        Chunk(number, start)
        for number, task in enumerate(federation.tasks)
        for start in range(0, len(task.test), CHUNK)
    ]


def score(
    module: nn.Module, dtype: torch.dtype, test: Source, federation: Federation, parts: Sequence[Chunk]
) -> Scores:
    """Count the right answers on these parts. One forward pass serves all protocols of a part."""
    right: dict[str, list[Tensor]] = {protocol: [NONE] * len(federation.tasks) for protocol in federation.protocols}
    module.eval()
    with torch.no_grad():
        for part in parts:
            task = federation.tasks[part.task]
            rows = torch.from_numpy(task.test[part.start : part.start + CHUNK].astype("int64"))
            rows = sent(rows, test.device)
            logits = module(test.fetch(rows, part.task).to(dtype))
            labels = test.labels(rows)
            for protocol, seen in _views(logits, task.classes, federation):
                right[protocol][part.task] = right[protocol][part.task] + (seen.argmax(1) == labels).sum()
    return {
        protocol: [int(count) for count in counts] for protocol, counts in right.items()
    }  # a GPU is asked here only


def _views(logits: Tensor, classes: Sequence[int], federation: Federation) -> Iterator[tuple[str, Tensor]]:
    """Yield the logits as each protocol sees them: task-IL knows the task, so the other tasks' logits are out."""
    for protocol in federation.protocols:
        if protocol == "task_il":
            known = torch.full_like(logits, -torch.inf)
            known[:, list(classes)] = logits[:, list(classes)]
            yield protocol, known
        else:
            yield protocol, logits


def merged(scores: Sequence[Scores]) -> Scores:
    """Add what several hosts counted."""
    return {
        protocol: [sum(column) for column in zip(*(s[protocol] for s in scores), strict=True)] for protocol in scores[0]
    }


def accuracies(scores: Scores, federation: Federation) -> dict[str, list[float]]:
    """Return the fraction of right answers by protocol and task."""
    sizes = [len(task.test) for task in federation.tasks]
    return {p: [right / size for right, size in zip(counts, sizes, strict=True)] for p, counts in scores.items()}
