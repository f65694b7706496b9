"""Accuracy by the likelihood of given answers: the one that the model finds most likely after the prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from raysim.config.error_text import show
from raysim.objectives.continuation import Continuation, find_runs, references_in
from raysim.objectives.objective import Inputs, Metric, Model
from raysim.objectives.token_metrics import Generation, TokenMetric
from raysim.system.errors import ConfigError

Answers = Sequence[str] | Sequence[Sequence[int]]


class Choices(TokenMetric):
    """The share of samples with a reference of the largest log p among given answers. The first one wins a tie.

    The log p of an answer is the sum over its tokens. The end of the answer does not count.

    Args:
        generation: the tokenizer and the id that ends a reference.
        answers: texts, or lists of ids without a tokenizer.
        per_token: whether the sum is divided by the number of tokens.
    """

    metric = Metric("accuracy of choices", "%", range=(0.0, 1.0))

    def __init__(self, generation: Generation, answers: Answers, per_token: bool) -> None:
        self._generation = generation
        self._answers = answers
        self._per_token = per_token

    @cached_property
    def _ids(self) -> list[tuple[int, ...]]:
        """The ids of each answer."""
        tokenizer = self._generation.tokenizer
        return [
            tuple(tokenizer.ids(answer) if isinstance(answer, str) and tokenizer is not None else map(int, answer))
            for answer in self._answers
        ]

    def check(self, targets: Tensor, ids: int) -> str | None:
        """Accept only references that are among the answers, with room for the longest answer.

        Raises:
            ConfigError: an answer has no token or an unknown one, or two have the same.
        """
        highest = max(number for answer in self._ids for number in (*answer, 0))
        if highest >= ids:
            raise ConfigError(
                f"objective.choices: found the id {highest}, allowed: 0 to {ids - 1}, which the data have"
            )
        if not all(self._ids) or len({*self._ids}) < len(self._ids):
            allowed = "answers with different tokens, at least one in each"
            raise ConfigError(f"objective.choices: found {show([*self._answers])}, allowed: {allowed}")
        if (problem := self._generation.check(targets)) is not None:
            return problem
        for row, index in enumerate(self._chosen(targets)):
            if index < 0:
                return f"found the answer {self._describe(targets, row)} (row {row}), allowed: those of choices"
        longest, room = max(map(len, self._ids)), targets.shape[1] - find_runs(targets)[0]
        if int(room.min()) < longest:
            row = int(room.argmin())
            allowed = f"at least {longest}, which the longest of choices has; set a larger dataset.length"
            return f"found room for {int(room.min())} tokens of an answer (row {row}), allowed: {allowed}"
        return None

    def _describe(self, targets: Tensor, row: int) -> str:
        found, tokenizer = references_in(targets[row : row + 1]), self._generation.tokenizer
        return show(found[0] if tokenizer is None else tokenizer.texts(found)[0])

    def _chosen(self, targets: Tensor) -> list[int]:
        """Return the index of each reference among the answers, or -1."""
        numbers = {ids: number for number, ids in enumerate(self._ids)}
        return [numbers.get(tuple(self._generation.without_end(ids)), -1) for ids in references_in(targets)]

    def answer(self, model: Model, x: Inputs, targets: Tensor) -> Tensor:
        """Return the log p of each answer, float64 [n, answers]. Answers that differ in the last token share a pass."""
        by_beginning: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for number, ids in enumerate(self._ids):
            by_beginning[ids[:-1]].append(number)
        scores = torch.empty(len(targets), len(self._ids), dtype=torch.float64, device=targets.device)
        for beginning, numbers in by_beginning.items():
            continued = Continuation(x, find_runs(targets)[0])
            for number in beginning:
                continued.append(torch.full_like(continued.ends, number), continued.have_room)
            log_p = continued.logits_before(model, len(beginning) + 1).log_softmax(-1).double()
            for number in numbers:
                tokens = torch.tensor(self._ids[number], device=log_p.device).expand(len(log_p), -1)
                of_tokens = log_p.gather(-1, tokens[..., None])[..., 0]
                scores[:, number] = of_tokens.mean(1) if self._per_token else of_tokens.sum(1)
        return scores

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the index of the most likely answer, int64 [n]."""
        return outputs.argmax(-1)

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return 1 for each reference that is the most likely answer, else 0: [n, 1]."""
        right = torch.tensor(self._chosen(targets), device=predictions.device)
        return (predictions == right).double()[:, None]
