"""A small transformer for texts: blocks of self-attention with masked padding. Vaswani et al., NeurIPS 2017.

Blocks normalize their inputs (pre-norm: Xiong et al., ICML 2020). Attention is written out in plain layers, so that
methods can access the inputs and gradients of each.
"""

from math import sqrt
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le, Lt, doc
from torch import Tensor, nn

from raysim.models.bag_of_embeddings import mean_of_tokens
from raysim.models.inputs import PADDING_ID, expect_ids
from raysim.system.errors import ConfigError


class AttentionBlock(nn.Module):
    """x + attention(norm(x)), then x + feedforward(norm(x)), for x [B, L, W]."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mixed = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.softmax = nn.Softmax(-1)
        self.wide, self.narrow = nn.Linear(width, feedforward), nn.Linear(feedforward, width)
        self.gelu = nn.GELU()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """Return x [B, L, W] after the block. `seen` (bool [B, 1, 1 or L, L]) is what each token attends to."""
        x = x + self.dropout(self._attend(self.norm1(x), seen))
        x = x + self.dropout(self.narrow(self.gelu(self.wide(self.norm2(x)))))
        return x

    def _attend(self, x: Tensor, seen: Tensor) -> Tensor:
        parts = self.qkv(x).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # [B, heads, L, d]
        scores = query @ key.transpose(2, 3) / sqrt(query.shape[-1])  # [B, heads, L, L]
        scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)  # finite, as a text may be only padding
        mixed: Tensor = self.mixed((self.softmax(scores) @ value).transpose(1, 2).flatten(2))
        return mixed


class Transformer(nn.Module):
    """Token and position embeddings - blocks - norm - mean over the tokens, or none - linear."""

    def __init__(
        self,
        vocabulary: int,
        length: int,
        outputs: int,
        width: int,
        blocks: list[AttentionBlock],
        causal: bool,
        each: bool,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)  # as in GPT and BERT: torch's std of 1 hardly trains
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, outputs)
        self.causal, self.each = causal, each

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits [B, outputs] of texts [B, L], or [B, L, outputs] for each token."""
        length = ids.shape[1]
        seen = (ids != PADDING_ID)[:, None, None]
        if self.causal:
            seen = seen & torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        x = self.tokens(ids) + self.places(torch.arange(length, device=ids.device))
        for block in self.blocks:
            x = block(x, seen)
        x = self.norm(x)
        logits: Tensor = self.head(x if self.each else mean_of_tokens(x, ids))
        return logits


def transformer(
    shape: tuple[int, ...],
    classes: int,
    *,
    width: Annotated[int, Ge(1), doc("numbers of a token's vector, throughout")] = 64,
    layers: Annotated[int, Ge(1), Le(1000), doc("blocks")] = 2,
    heads: Annotated[int, Ge(1), doc("of the attention in each block, which share the width")] = 4,
    feedforward: Annotated[int, Ge(1), doc("the width of a block's hidden layer")] = 128,
    dropout: Annotated[float, Ge(0), Lt(1), doc("the probability that a number that a block adds is dropped")] = 0.0,
    causal: Annotated[bool, doc("whether a token sees only itself and those before it")] = False,
    output: Annotated[
        Literal["text", "token"], doc("logits of the text, from the mean of its tokens; or of each token")
    ] = "text",
    vocabulary: Annotated[
        Annotated[int, Ge(1)] | None, doc("rows of the table of vectors; null is as many as the data have ids")
    ] = None,
) -> nn.Module:
    """A small transformer encoder for texts; keys width, layers, heads, causal, output (Vaswani et al., 2017).

    Raises:
        ConfigError: the samples are not token ids, or the number of heads does not divide the width.
    """
    length, ids = expect_ids("transformer", shape, vocabulary)
    if width % heads:
        raise ConfigError(f"model.heads: found {heads}, allowed: a number that divides model.width ({width})")
    blocks = [AttentionBlock(width, heads, feedforward, dropout) for _ in range(layers)]
    return Transformer(ids, length, classes, width, blocks, causal, output == "token")
