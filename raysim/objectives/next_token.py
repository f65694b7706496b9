"""Next-token prediction at every position of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from annotated_types import Ge, doc
from torch import Tensor
from torch.nn import functional

from raysim.objectives.choices import Choices
from raysim.objectives.objective import IGNORED, Inputs, Model, Objective
from raysim.objectives.rouge import RougeL
from raysim.objectives.token_metrics import ExactMatch, Generation, Perplexity, TokenMetric
from raysim.objectives.tokenizer import Tokenizer
from raysim.system.errors import ConfigError

Id = Annotated[int, Ge(0)]


class NextToken(Objective):
    """The token that follows at each position, an id: cross-entropy over the tokens of answers.

    Targets that are IGNORED (-100) or `padding` are not counted, such as those of a prompt. The loss is the mean over
    the counted tokens of a batch. Perplexity is exp of the mean of -log p over all counted tokens of a task's test
    samples: lower is better. The other metrics compare what the model continues each prompt with.
    """

    positions: ClassVar[bool] = True

    def __init__(
        self,
        *,
        padding: Annotated[Id | None, doc("an id that no loss counts, beside targets of -100; null is none")] = None,
        metric: Annotated[
            Literal["perplexity", "exact_match", "rouge_l", "choices"],
            doc("perplexity; or of answers that are generated greedily, or of the likelihoods of `choices`"),
        ] = "perplexity",
        new_tokens: Annotated[int, Ge(1), doc("the most tokens of a generated answer")] = 32,
        tokenizer: Annotated[
            str | None,
            doc("the folder of a tokenizer, with which texts are compared; null compares ids"),
        ] = None,
        end: Annotated[Id | None, doc("the id that ends an answer; null is the tokenizer's, if there is one")] = None,
        choices: Annotated[
            tuple[str, ...] | tuple[tuple[Id, ...], ...],
            doc("the answers of metric: choices: texts, or lists of ids without a tokenizer"),
        ] = (),
        per_token: Annotated[
            bool, doc("whether the likelihood of a choice is its mean over tokens, not the sum")
        ] = False,
    ) -> None:
        self.padding = IGNORED if padding is None else padding
        _check_keys(metric, tokenizer, choices)
        self._tokenizer = None if tokenizer is None else Tokenizer(tokenizer)
        generation = Generation(new_tokens, self._tokenizer, end)
        metrics: dict[str, TokenMetric] = {
            "perplexity": Perplexity(),
            "exact_match": ExactMatch(generation),
            "rouge_l": RougeL(generation),
            "choices": Choices(generation, choices, per_token),
        }
        self.measured = metrics[metric]
        self.metric, self.continues = self.measured.metric, self.measured.continues

    @property
    def tokenizer_digest(self) -> str | None:
        """The digest of the tokenizer. Raises ConfigError if there is none where it is named."""
        return None if self._tokenizer is None else self._tokenizer.digest

    def check(self, targets: npt.NDArray[Any], ids: int) -> str | None:
        """Accept only int64 [N, length] with at least one counted token in each sample."""
        if targets.dtype != np.int64 or targets.ndim != 2:
            return f"found targets of {targets.dtype} {list(targets.shape)}, allowed: ids of tokens, int64 [N, length]"
        empty = np.flatnonzero(((targets == self.padding) | (targets == IGNORED)).all(1))
        if empty.size:
            found = f"found a sample of which no token counts, only padding or {IGNORED} (row {empty[0]})"
            return f"{found}, allowed: at least one token in each; leave such samples out"
        return self.measured.check(self._counted(torch.from_numpy(targets)), ids)

    def outputs(self, targets: npt.NDArray[Any], ids: int) -> int:
        """Return the size of the vocabulary."""
        return ids

    def _counted(self, targets: Tensor) -> Tensor:
        """Return targets [n, length] that are IGNORED where nothing counts."""
        return targets.masked_fill(targets == self.padding, IGNORED)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy over the counted tokens: logits [n, length, ids], targets [n, length]."""
        counted = self._counted(targets)
        return functional.cross_entropy(outputs.flatten(0, 1), counted.flatten(), ignore_index=IGNORED)

    def answer(self, model: Model, x: Inputs, targets: Tensor) -> Tensor:
        """Return logits, generated ids or likelihoods, as the metric needs them."""
        return self.measured.answer(model, x, self._counted(targets))

    def terms(self, targets: Tensor) -> Tensor:
        """Return the number of tokens that the loss counts, []."""
        return (self._counted(targets) != IGNORED).sum()

    def predict(self, outputs: Tensor) -> Tensor:
        """Return the predictions for what `answer` returned: of perplexity log p of every id, [n, length, ids]."""
        return self.measured.predict(outputs)

    def measure(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """Return each sample's contribution to the metric, [n, m]."""
        return self.measured.measure(predictions, self._counted(targets))

    def value(self, sums: Sequence[Fraction], samples: int) -> float | Fraction:
        """Return the metric."""
        return self.measured.value(sums, samples)


def _check_keys(metric: str, tokenizer: str | None, choices: Sequence[str] | Sequence[Sequence[int]]) -> None:
    """Refuse keys that do not fit the metric. Raises ConfigError."""
    if (metric == "choices") != bool(choices):
        allowed = "a list of answers" if metric == "choices" else f"none with metric={metric}"
        raise ConfigError(f"objective.choices: found {list(choices)}, allowed: {allowed}")
    if metric == "perplexity" and tokenizer is not None:
        raise ConfigError(f"objective.tokenizer: found {tokenizer}, allowed: null with metric=perplexity")
    if metric == "choices" and isinstance(choices[0], str) != (tokenizer is not None):
        allowed = "lists of ids without objective.tokenizer" if tokenizer is None else "texts with objective.tokenizer"
        raise ConfigError(f"objective.choices: found {list(choices)}, allowed: {allowed}")
