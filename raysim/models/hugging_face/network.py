"""A body of transformers as one network of raysim: a tensor or a dict of tensors in, logits or features out."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Pool = Literal["mean", "first", "last"]


class PretrainedNetwork(nn.Module):
    """A body, and what makes logits of its hidden states.

    Args:
        body: the module of transformers.
        pool: how the hidden states of a text become one vector; None for a causal language model.
        head: the linear layer on this vector, or None to return the vector.
        padding: the id that is no token, for samples without a mask.
    """

    def __init__(self, body: nn.Module, pool: Pool | None, head: nn.Linear | None, padding: int | None) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self._pool, self._padding = pool, padding

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Return the logits or features [B, n] of texts, or the logits [B, L, vocabulary] of all tokens.

        Args:
            x: the ids [B, L], or input_ids, attention_mask and token_type_ids [B, L] by name.
        """
        inputs = self._inputs(x)
        length = inputs["input_ids"].shape[1]
        if self.training:
            inputs = _trimmed(inputs)
        output = self.body(**inputs, use_cache=False) if self._takes_cache else self.body(**inputs)
        if self._pool is None:
            logits: Tensor = output.logits
            return functional.pad(logits, (0, 0, 0, length - logits.shape[1])) if logits.shape[1] < length else logits
        pooled = pool_tokens(output.last_hidden_state, inputs["attention_mask"], self._pool)
        if self.head is None:
            return pooled
        logits = self.head(pooled.to(self.head.weight.dtype))
        return logits

    @property
    def _takes_cache(self) -> bool:
        return hasattr(self.body.config, "use_cache")

    def _inputs(self, x: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the body's inputs by name, with a mask."""
        inputs = {"input_ids": x} if isinstance(x, Tensor) else dict(x)
        if "attention_mask" not in inputs:
            inputs["attention_mask"] = inputs["input_ids"].ne(self._padding).long()
        return inputs


def _trimmed(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return inputs without the last positions that no text of the batch has.

    Only training batches are trimmed. A client's streams decide which samples these have, so the shape is the same for
    any number of hosts. Chunks of evaluations have a fixed shape.
    """
    used = inputs["attention_mask"].any(0).nonzero()
    length = int(used[-1]) + 1 if len(used) else 1
    return {name: tensor[:, :length] for name, tensor in inputs.items()}


def pool_tokens(hidden: Tensor, mask: Tensor, pool: Pool) -> Tensor:
    """Return a vector [B, W] for hidden states [B, L, W] of texts with a mask [B, L].

    `mean` is the mean of the tokens in the mask, as in Sentence-BERT (Reimers, Gurevych, EMNLP 2019). `first` is the
    first token, such as [CLS], and `last` is the last token in the mask.
    """
    if pool == "first":
        return hidden[:, 0]
    if pool == "last":
        places = torch.arange(mask.shape[1], device=mask.device)
        last = (mask != 0).long().mul(places).amax(1)
        return hidden[torch.arange(len(hidden), device=hidden.device), last]
    weights = mask.to(hidden.dtype)[..., None]
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
