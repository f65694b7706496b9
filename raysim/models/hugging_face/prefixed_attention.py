"""Attention of transformers with prefixes: keys and values that all tokens attend to in addition to their own.

transformers lets models use an attention function that others register. The one of this module is its function `sdpa`,
with the prefixes of the pass in front of the keys and values. Without prefixes the bits are those of `sdpa`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.models.hugging_face.folder import EXTRA
from raysim.models.prompts import Prefixes
from raysim.system.errors import ConfigError
from raysim.system.importing import import_extra

NAME = "raysim_prefixed_sdpa"
BLOCK = "raysim_block"
"""The attribute of a block's modules that has its number."""


@dataclass
class _Pass:
    """The prefixes of a pass by block, and the blocks that have used theirs."""

    prefixes: Prefixes
    used: set[int] = field(default_factory=set)


_PASS: ContextVar[_Pass | None] = ContextVar("prefixes", default=None)
"""The pass of this thread: several threads compute features with one module."""


def use_prefixes(body: Any, blocks: list[nn.Module]) -> None:
    """Have the attention of a model of transformers use the prefixes of `with_prefixes`.

    Args:
        body: the model, with the attention function sdpa.
        blocks: its blocks in order.
    """
    transformers = import_extra("transformers", EXTRA)
    masks = import_extra("transformers.masking_utils", EXTRA)
    transformers.AttentionInterface.register(NAME, _attend)
    transformers.AttentionMaskInterface.register(NAME, masks.sdpa_mask)  # otherwise the function would have no mask
    body.set_attn_implementation(NAME)
    for number, block in enumerate(blocks):
        for part in block.modules():
            setattr(part, BLOCK, number)


@contextmanager
def with_prefixes(prefixes: Prefixes) -> Iterator[None]:
    """Have the attention of these blocks use prefixes in this context, in which all of them have a pass.

    Args:
        prefixes: the number of a block -> keys and values [B, P, W].

    Raises:
        ConfigError: the architecture has other attention, which used none.
    """
    now = _Pass(prefixes)
    token = _PASS.set(now)
    try:
        yield
    finally:
        _PASS.reset(token)
    if unused := prefixes.keys() - now.used:
        problem = f"the attention of block {min(unused)} takes no prefixes in this architecture"
        raise ConfigError(f"model.prompts.kind: {problem}, allowed: l2p, or an encoder such as bert or roberta")


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> Any:
    """Return what transformers' `sdpa` returns for queries, keys and values [B, heads, L, d], and the prefixes."""
    number: int = getattr(module, BLOCK, -1)
    now = _PASS.get()
    if now is not None and number in now.prefixes:
        front = [part.unflatten(-1, (key.shape[1], -1)).transpose(1, 2).to(key) for part in now.prefixes[number]]
        key, value = torch.cat([front[0], key], 2), torch.cat([front[1], value], 2)
        now.used.add(number)
        if attention_mask is not None:  # true or 0 for a token that is attended to
            seen = True if attention_mask.dtype == torch.bool else 0.0
            attention_mask = functional.pad(attention_mask, (front[0].shape[2], 0), value=seen)
    functions: Mapping[str, Any] = import_extra("transformers", EXTRA).AttentionInterface()
    return functions["sdpa"](module, query, key, value, attention_mask, **options)
