"""Metrics of next tokens: their interface, perplexity, and exact match of generated answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from raysim.objectives.continuation import Continuation, continue_greedily, find_runs, references_in, without_none
from raysim.objectives.objective import IGNORED, Inputs, Metric, Model
from raysim.objectives.tokenizer import Tokenizer


class TokenMetric(ABC):
    """A metric of next tokens. Targets are int64 [n, length], IGNORED where nothing counts.

    See `Objective` for the functions.
    """

    metric: Metric
    continues: ClassVar[bool] = True
    """Whether it needs ids, see `Objective.continues`."""

    def check(self, targets: Tensor, ids: int) -> str | None:
        """Return a problem with the targets of a split, as `found ..., allowed: ...`, or None.

        `ids` is the number of ids that the model returns.

        Raises:
            ConfigError: there is no tokenizer where one is named.
        """
        return None

    @abstractmethod
    def answer(self, model: Model, x: Inputs, targets: Tensor) -> Tensor:
        """Return what `measure` receives for samples."""

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the predictions for what `answer` returned. By default they are the same."""
        return outputs

    @abstractmethod
    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's contribution, [n, m]."""

    def value(self, sums: Sequence[Fraction], samples: int) -> float | Fraction:
        """Return the metric, by default the mean over the samples."""
        return sums[0] / samples


class Perplexity(TokenMetric):
    """exp of the mean of -log p over all counted tokens: lower is better."""

    metric = Metric("perplexity", higher_is_better=False, range=(1.0, None))
    continues: ClassVar[bool] = False

    def answer(self, model: Model, x: Inputs, targets: Tensor) -> Tensor:
        """Return the logits of one pass, [n, length, ids]."""
        return model(x)

    def predict(self, outputs: Tensor) -> Tensor:
        """Return log p of every id, [n, length, ids]."""
        return outputs.log_softmax(-1)

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's sum of -log p over its tokens, and its number of tokens, [n, 2]."""
        counted = targets != IGNORED
        token_losses = -predictions.gather(-1, targets.clamp(min=0)[..., None]).squeeze(-1).double()
        return torch.stack([token_losses.where(counted, 0.0).sum(1), counted.sum(1).double()], 1)

    def value(self, sums: Sequence[Fraction], samples: int) -> float:
        """Return the perplexity."""
        total_loss, tokens = sums
        return math.exp(total_loss / tokens)


@dataclass(frozen=True)
class Generation:
    """How answers are generated, and read."""

    new_tokens: int
    """The most tokens of an answer."""
    tokenizer: Tokenizer | None
    """The tokenizer that makes texts of ids; None if ids are compared."""
    end: int | None
    """The id that ends an answer; None is the tokenizer's, if there is one."""

    @property
    def stop(self) -> int | None:
        """The id that ends an answer, or None."""
        return self.tokenizer.end if self.end is None and self.tokenizer is not None else self.end

    def check(self, targets: Tensor) -> str | None:
        """Return a problem of the tokenizer with ids, or None. Raises ConfigError if a named one is missing."""
        return None if self.tokenizer is None else self.tokenizer.check(int(targets.max()))

    def carry_out(self, model: Model, x: Inputs, targets: Tensor, most: int | None = None) -> Tensor:
        """Return the tokens that the model appends to the prompts, int64 [n, most], NONE after the last one."""
        return continue_greedily(model, Continuation(x, find_runs(targets)[0]), most or self.new_tokens, self.stop)

    def without_end(self, ids: Sequence[int]) -> list[int]:
        """Return an answer's ids before the first one that ends it."""
        stop = self.stop
        return [*ids[: ids.index(stop)]] if stop in ids else [*ids]


class ExactMatch(TokenMetric):
    """The share of generated answers that equal the reference: their stripped texts, or their ids without a tokenizer.

    Ids are compared up to the reference's length: if a reference has its end, so must the answer.
    """

    metric = Metric("exact match", "%", range=(0.0, 1.0))

    def __init__(self, generation: Generation) -> None:
        self._generation = generation

    def check(self, targets: Tensor, ids: int) -> str | None:
        """Accept ids that the tokenizer has."""
        return self._generation.check(targets)

    def answer(self, model: Model, x: Inputs, targets: Tensor) -> Tensor:
        """Return the generated ids, [n, most]."""
        generation = self._generation
        longest = int(find_runs(targets)[1].max()) if generation.tokenizer is None else generation.new_tokens
        return generation.carry_out(model, x, targets, min(longest, generation.new_tokens))

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return 1 for each answer that is equal, else 0: [n, 1]."""
        answers, references, tokenizer = without_none(predictions), references_in(targets), self._generation.tokenizer
        if tokenizer is None:
            pairs = zip(answers, references, strict=True)
            equal = [answer[: len(reference)] == reference for answer, reference in pairs]
        else:
            texts = (tokenizer.texts([*map(self._generation.without_end, rows)]) for rows in (answers, references))
            equal = [answer.strip() == reference.strip() for answer, reference in zip(*texts, strict=True)]
        return torch.tensor(equal, dtype=torch.float64)[:, None]
