"""ROUGE-L of generated answers: the longest common subsequence of words (Lin, ACL workshop 2004)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from raysim.objectives.continuation import references_in, without_none
from raysim.objectives.objective import Inputs, Metric, Model
from raysim.objectives.token_metrics import Generation, TokenMetric
from raysim.objectives.words import find_words


def common_length(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence.

    There is a bit for each element of `first`, and an addition for each of `second`: Crochemore et al., "A fast and
    practical bit-vector algorithm for the longest common subsequence problem", IPL 80, 2001.

    >>> common_length("the cat sat on the mat".split(), "the cat is on the mat".split())
    5
    """
    places: defaultdict[Hashable, int] = defaultdict(int)
    for position, element in enumerate(first):
        places[element] |= 1 << position
    every = (1 << len(first)) - 1
    left = every
    for element in second:
        matched = left & places[element]
        left = (left + matched | left - matched) & every
    return len(first) - left.bit_count()


def rouge_l(answer: Sequence[Hashable], reference: Sequence[Hashable]) -> float:
    """Return F1 of the longest common subsequence: 2 l / (m + n) for m and n words; 0 without words."""
    words = len(answer) + len(reference)
    return 2 * common_length(answer, reference) / words if words else 0.0


class RougeL(TokenMetric):
    """The mean of ROUGE-L of generated answers and references: of words, or of ids without a tokenizer."""

    metric = Metric("ROUGE-L", "%", range=(0.0, 1.0))

    def __init__(self, generation: Generation) -> None:
        self._generation = generation

    def check(self, targets: Tensor, ids: int) -> str | None:
        """Accept ids that the tokenizer has."""
        return self._generation.check(targets)

    def answer(self, model: Model, x: Inputs, targets: Tensor) -> Tensor:
        """Return the generated ids, [n, most]."""
        return self._generation.carry_out(model, x, targets)

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return ROUGE-L of each answer, [n, 1]."""
        pairs = zip(self._words(without_none(predictions)), self._words(references_in(targets)), strict=True)
        return torch.tensor([rouge_l(*pair) for pair in pairs], dtype=torch.float64)[:, None]

    def _words(self, rows: Sequence[Sequence[int]]) -> Sequence[Sequence[Hashable]]:
        answers, tokenizer = [*map(self._generation.without_end, rows)], self._generation.tokenizer
        return answers if tokenizer is None else [*map(find_words, tokenizer.texts(answers))]
