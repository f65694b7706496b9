"""Little texts with prompts, and models whose continuation is known: the next id follows from the last one alone."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from raysim.data.arrays import join_arrays
from raysim.data.dataset import Array, Dataset, Split
from raysim.data.scenario import Task
from raysim.objectives import IGNORED

IDS, LENGTH, END = 10, 8, 9
SUCCESSORS = (4, 2, 3, END, 5, 6, 7, 1, 8, 0)
"""The most likely id after each id: 1 2 3 9, and 4 5 6 7 1 2 3 9. After 8 comes 8."""


def encode(prompt: list[int], answer: list[int], length: int = LENGTH) -> tuple[Array, Array, Array]:
    """Return ids, mask and targets [length] of a prompt and its answer, as a reader of instructions makes them."""
    ids = [*prompt, *answer]
    targets = [IGNORED] * (len(prompt) - 1) + answer
    real = len(ids) - 1  # nothing follows the last id
    padded = np.zeros((2, length), np.int64)
    padded[0, :real], padded[1, :real] = ids[:real], 1
    y = np.full(length, IGNORED)
    y[:real] = targets
    return padded[0], padded[1], y


PAIRS = [
    ([8, 1], [2, 3, END]),  # right
    ([4], [5, 6, 7, 1, 2, 3, END]),  # right, to the last position
    ([8, 1], [2, 3]),  # right: the reference has no end
    ([8, 1], [2, END]),  # wrong: the answer is 2 3 end
    ([8, 1], [2, 3, 3, END]),  # wrong
    ([8, 2], [3, END]),  # right
    ([1, 8], [8, END]),  # wrong: 8 8 8 8
]
"""Prompts and references, and what the model of SUCCESSORS makes of them."""


def split_of(pairs: list[tuple[list[int], list[int]]]) -> tuple[Array, Array, Array]:
    """Return ids, masks and targets [n, length]."""
    ids, masks, targets = zip(*(encode(*pair) for pair in pairs), strict=True)
    return np.stack(ids), np.stack(masks), np.stack(targets)


def answers(root: Path, download: bool, *, masked: bool = True) -> Dataset:
    """PAIRS, eight times for training: as ids and mask, or as ids alone."""
    ids, masks, y = split_of(PAIRS)
    train_ids, train_masks = np.tile(ids, (8, 1)), np.tile(masks, (8, 1))
    if not masked:
        return Dataset(Split(train_ids, np.tile(y, (8, 1))), Split(ids, y), classes=IDS, vocabulary=IDS)
    train = {"input_ids": train_ids, "attention_mask": train_masks}
    test = {"input_ids": ids, "attention_mask": masks}
    x, x_test, arrays = join_arrays(train, test, {"input_ids": IDS, "attention_mask": 2})
    return Dataset(Split(x, np.tile(y, (8, 1))), Split(x_test, y), classes=IDS, arrays=arrays)


def halves(dataset: Dataset, tasks: int, generator: np.random.Generator) -> list[Task]:
    """Equal parts of the training samples. The tests of a task are every second one."""
    parts = np.array_split(np.arange(len(dataset.train), dtype=np.int32), tasks)
    tests = [np.arange(part, len(dataset.test), tasks, dtype=np.int32) for part in range(tasks)]
    everything = zip(parts, tests, strict=True)
    return [
        Task(f"part {number}", tuple(range(IDS)), None, rows, test) for number, (rows, test) in enumerate(everything, 1)
    ]


class ByLastId(nn.Module):
    """The logits of a position follow from its id: 3 for its successor, -inf nowhere."""

    def __init__(self, ids: int) -> None:
        super().__init__()
        self.table = nn.Embedding(ids, ids)
        weights = torch.zeros(ids, ids)
        weights[torch.arange(IDS), torch.tensor(SUCCESSORS)] = 3.0
        self.table.weight.data = weights
        self.passes = 0

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
        self.passes += 1
        logits: Tensor = self.table(x if isinstance(x, Tensor) else x["input_ids"])
        return logits


def by_last_id(shape: object, classes: int, vocabulary: object = None) -> nn.Module:
    return ByLastId(classes)
