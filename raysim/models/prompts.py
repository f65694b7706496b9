"""Prompt modules: what trained prompts add to a frozen transformer, for images or texts.

A module receives the query of each sample and returns `Filled`: tokens, or prefixes of attention. The query [B, W] is
the output of the same trunk without prompts and without a gradient: the class token's, or a text's pooled one.

A task may matter to a module. It then has `at_task(task, so_far)`, which the caller uses before each pass: `task` is
the task in training, or None in evaluation. `so_far` is the number of tasks up to now.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from raysim.models.orthonormal import draw_orthonormal_rows
from raysim.models.prompt_keys import (
    CodaKeys,
    DualKeys,
    L2PKeys,
    PrefixKeys,
    PromptKeys,
    TextL2PKeys,
    TextPromptKeys,
    TokenPoolKeys,
)
from raysim.system.errors import ConfigError

SMALLEST_SQUARE = 1e-12  # of a norm that something is divided by
CODE_STD = 0.02  # of the position codes of prompts

Prefixes = Mapping[int, tuple[Tensor, Tensor]]
"""Block number -> keys and values [B, P, W] that its attention attends to in addition."""


@dataclass(frozen=True)
class Filled:
    """What the slots of the transformer receive for B images.

    Attributes:
        tokens: the prompts [B, P, W] between the class token and the patches, without position codes; or None.
        codes: the position codes [P, W] of the prompts.
        shifted: whether the codes belong to the class token and all prompts but the last one. The last prompt then has
            the class token's code.
        averaged: the numbers of the first output token, and of the one after the last, in the mean that is the head's
            input.
        prefixes: see `Prefixes`.
    """

    tokens: Tensor | None = None
    codes: Tensor | None = None
    shifted: bool = False
    averaged: tuple[int, int] = (0, 1)
    prefixes: Prefixes = field(default_factory=dict)


class Prompts(nn.Module):
    """A module that fills the slots.

    Attributes:
        first_block: the first block that prompts reach, from 0.
        asks: whether what a sample receives depends on its query. If not, no pass computes queries.
    """

    first_block = 0
    asks: ClassVar[bool] = True

    @abstractmethod
    def forward(self, query: Tensor) -> Filled:
        """Return what the slots receive for images with these queries [B, W]."""


def cosines(queries: Tensor, keys: Tensor) -> Tensor:
    """Return the cosines [B, n] of queries [B, W] and keys [n, W]."""
    return _normalize(queries) @ _normalize(keys).T


def _normalize(rows: Tensor) -> Tensor:
    return rows * rows.square().sum(-1, keepdim=True).clamp(min=SMALLEST_SQUARE).rsqrt()


class Pool(Prompts):
    """Prompts with keys, from which the cosines with an image's query choose.

    Attributes:
        keys: the keys [n, W].
        listens: whether to keep what `pull` needs of the next pass in training mode, which ends listening.
        query: the queries [B, W] of that pass.
        chosen: the entries [B, top] that it chose, the nearest first.
    """

    listens = True
    query: Tensor
    chosen: Tensor

    def __init__(self, entries: int, width: int) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.empty(entries, width).uniform_(-1, 1))

    def pull(self) -> Tensor:
        """Return the sum of the cosines of an image's query and its chosen keys, as a mean over the batch kept.

        A method adds it to the loss with a negative weight.
        """
        similarity = cosines(self.query, self.keys)
        return similarity.gather(1, self.chosen).sum(1).mean()

    def _note(self, query: Tensor, chosen: Tensor) -> None:
        """Keep what `pull` needs. Passes in evaluation mode, such as a teacher's, do not count."""
        if self.training and self.listens:
            self.query, self.chosen, self.listens = query, chosen, False


class L2PPrompts(Pool):
    """The `top` entries of the pool with the nearest keys, as tokens. Wang et al., CVPR 2022, arXiv 2112.08654.

    `entries` are [pool, length, W]. `codes` are the frozen position codes [top length, W] of the tokens. All hosts draw
    the same ones.
    """

    def __init__(self, keys: L2PKeys, width: int) -> None:
        super().__init__(keys.pool, width)
        self.entries = nn.Parameter(torch.empty(keys.pool, keys.length, width).uniform_(-1, 1))
        self.codes = nn.Parameter(CODE_STD * torch.randn(keys.top * keys.length, width), requires_grad=False)
        self._top, self._shifted = keys.top, keys.faithful_positions
        self._averaged = (int(keys.average == "prompts"), 1 + keys.top * keys.length)

    def forward(self, query: Tensor) -> Filled:
        """Return the tokens for images with these queries [B, W], those of the nearest key first."""
        return Filled(self.tokens(query), self.codes, self._shifted, self._averaged)

    def tokens(self, query: Tensor) -> Tensor:
        """Return the tokens [B, top length, W] for queries [B, W], those of the nearest key first."""
        with torch.no_grad():
            chosen = cosines(query, self.keys).topk(self._top, 1).indices  # [B, top]
        self._note(query, chosen)
        tokens: Tensor = self.entries[chosen].flatten(1, 2)
        return tokens


class TextL2PPrompts(L2PPrompts):
    """L2P for texts: the same pool, in front of a block's input, without position codes."""

    def __init__(self, keys: TextL2PKeys, width: int) -> None:
        Pool.__init__(self, keys.pool, width)
        self.entries = nn.Parameter(torch.empty(keys.pool, keys.length, width).uniform_(-1, 1))
        self._top, self.first_block = keys.top, keys.block

    def forward(self, query: Tensor) -> Filled:
        """Return the tokens for texts with these queries [B, W]."""
        return Filled(self.tokens(query))


class DualPrompts(Pool):
    """Prefixes of all tasks and of each task. Wang et al., ECCV 2022, arXiv 2204.04799.

    `general` are [blocks, 2, length, W] and `entries` [blocks, 2, pool, length, W], where 2 are keys and values.
    """

    trainable: Tensor

    def __init__(self, keys: DualKeys, width: int) -> None:
        super().__init__(keys.pool, width)
        self._general_blocks, self._blocks = keys.general_blocks, keys.blocks
        self.first_block = min((*keys.general_blocks, *keys.blocks), default=0)
        general = torch.empty(len(keys.general_blocks), 2, keys.general_length, width)
        self.general = nn.Parameter(general.uniform_(-1, 1))
        entries = torch.empty(len(keys.blocks), 2, keys.pool, keys.length, width)
        self.entries = nn.Parameter(entries.uniform_(-1, 1))
        # a mask and not a branch, so that one CUDA graph serves all tasks
        self.register_buffer("trainable", torch.ones(keys.pool, dtype=torch.bool), persistent=False)

    def at_task(self, task: int | None, so_far: int) -> None:
        """Use the task's entry for all images, or in evaluation and beyond the pool the one with the nearest key."""
        if task is None or task >= len(self.trainable):
            self.trainable.fill_(True)
        else:
            self.trainable.fill_(False)
            self.trainable[task] = True

    def forward(self, query: Tensor) -> Filled:
        """Return the prefixes for images with these queries [B, W]."""
        with torch.no_grad():
            similarity = cosines(query, self.keys)
            chosen = similarity.masked_fill(~self.trainable, -torch.inf).argmax(1)  # [B]
        self._note(query, chosen[:, None])
        shared = {
            block: (pair[0].expand(len(query), -1, -1), pair[1].expand(len(query), -1, -1))
            for block, pair in zip(self._general_blocks, self.general, strict=True)
        }
        of_tasks = {
            block: (pair[0][chosen], pair[1][chosen]) for block, pair in zip(self._blocks, self.entries, strict=True)
        }
        return Filled(prefixes=shared | of_tasks)


class CodaPrompts(Prompts):
    """Prefixes as sums of components, weighted by cosines. Smith et al., CVPR 2023, arXiv 2211.13218.

    Each block has `components` [pool, length, W], `keys` and `attention` [pool, W]. Component i of a query q has the
    weight cos(q * attention_i, keys_i).
    """

    used: Tensor
    earlier: Tensor

    def __init__(self, keys: CodaKeys, width: int) -> None:
        super().__init__()
        self._blocks, self._per_task, self._softmax = keys.blocks, keys.per_task, keys.attention == "softmax"
        self.first_block = min(keys.blocks, default=0)
        drawn = keys.pool if keys.initial == "orthogonal" else keys.per_task

        def draw(*shape: int) -> nn.ParameterList:
            tables = (torch.zeros(keys.pool, *shape) for _ in keys.blocks)
            return nn.ParameterList([nn.Parameter(draw_orthonormal_rows(table, 0, drawn)) for table in tables])

        self.components, self.keys, self.attention = draw(keys.length, width), draw(width), draw(width)
        # masks and not slices, so that one CUDA graph serves all tasks
        self.register_buffer("used", torch.zeros(keys.pool, dtype=torch.bool), persistent=False)
        self.register_buffer("earlier", torch.zeros(keys.pool, dtype=torch.bool), persistent=False)
        self.at_task(0, 1)

    @property
    def tables(self) -> Sequence[nn.Parameter]:
        """The components, keys and attention vectors of all blocks, each [pool, ...]."""
        return [*self.components, *self.keys, *self.attention]

    def rows_of(self, task: int) -> tuple[int, int]:
        """Return the first component that a task trains, and the one after the last.

        Raises:
            ConfigError: the pool has fewer.
        """
        start, stop = task * self._per_task, (task + 1) * self._per_task
        if stop > len(self.used):
            problem = f"found {len(self.used)}, allowed for task {task + 1}: at least {stop}"
            raise ConfigError(f"model.prompts.pool: {problem}, per_task ({self._per_task}) for each task")
        return start, stop

    def at_task(self, task: int | None, so_far: int) -> None:
        """Use the components of the tasks up to this one, and train those of this one.

        In evaluation the components of all tasks so far are used.
        """
        start, stop = self.rows_of(so_far - 1 if task is None else task)
        numbers = torch.arange(len(self.used), device=self.used.device)
        self.used.copy_(numbers < stop)
        self.earlier.copy_(numbers < start)

    def forward(self, query: Tensor) -> Filled:
        """Return the prefixes for images with these queries [B, W]."""
        prefixes = {}
        for block, parts in zip(
            self._blocks, zip(self.components, self.keys, self.attention, strict=True), strict=True
        ):
            components, keys, attention = map(self._without_earlier, parts)
            if self._softmax:
                attention = attention.softmax(-1)
            # cos(q * a, k) of all images and components, without the products [B, pool, W]
            lengths = (query.square() @ attention.square().T).clamp(min=SMALLEST_SQUARE)
            weights = query @ (attention * _normalize(keys)).T * lengths.rsqrt() * self.used  # [B, pool]
            # under autocast, weights are rounded and not components
            prompt = torch.tensordot(weights.to(components.dtype), components, 1)  # [B, length, W]
            half = prompt.shape[1] // 2
            prefixes[block] = (prompt[:, :half], prompt[:, half:])
        return Filled(prefixes=prefixes)

    def orthogonality(self) -> Tensor:
        """Return the sum over all tables M of the mean square of M M^T - I.

        M has the rows of the tasks up to this one. A component counts as one row. Rows of earlier tasks have no
        gradient.
        """
        penalty: Tensor = self.components[0].new_zeros(())
        for table in self.tables:
            rows = self._without_earlier(table).flatten(1)[self.used]
            penalty += (rows @ rows.T - torch.eye(len(rows)).to(rows)).square().mean()
        return penalty

    def _without_earlier(self, table: Tensor) -> Tensor:
        """Return the table without a gradient in the rows of earlier tasks. Plain Adam then keeps their bits."""
        mask = self.earlier.view(-1, *[1] * (table.dim() - 1))
        return torch.where(mask, table.detach(), table)


class PrefixPrompts(Prompts):
    """The same prefixes for all samples. Li and Liang, ACL 2021, arXiv 2101.00190.

    `prefixes` are [blocks, 2, length, W], where 2 are keys and values.
    """

    asks = False

    def __init__(self, keys: PrefixKeys, width: int) -> None:
        super().__init__()
        self._blocks, self.first_block = keys.blocks, min(keys.blocks, default=0)
        shape = (2, keys.length, width)
        if keys.initial == "unit":
            drawn = [draw_orthonormal_rows(torch.zeros(1, *shape), 0, 1)[0] for _ in keys.blocks]
            self.prefixes = nn.Parameter(torch.stack(drawn) if drawn else torch.zeros(0, *shape))
        else:
            self.prefixes = nn.Parameter(torch.zeros(len(keys.blocks), *shape))

    def forward(self, query: Tensor) -> Filled:
        """Return the prefixes for as many samples as queries [B, ...], which have no other effect."""
        prefixes = {
            block: (pair[0].expand(len(query), -1, -1), pair[1].expand(len(query), -1, -1))
            for block, pair in zip(self._blocks, self.prefixes, strict=True)
        }
        return Filled(prefixes=prefixes)


def make_prompts(keys: PromptKeys | TextPromptKeys, width: int, depth: int) -> Prompts:
    """Return the prompt module for a trunk of this width and number of blocks.

    Raises:
        ConfigError: the keys contradict each other, a block does not exist, or the pool is too large for the width.
    """
    for at_fault, key, problem in _faults(keys, width, depth):
        if at_fault:
            raise ConfigError(f"model.prompts.{key}: {problem}")
    if isinstance(keys, TokenPoolKeys):
        return TextL2PPrompts(keys, width) if isinstance(keys, TextL2PKeys) else L2PPrompts(keys, width)
    if isinstance(keys, PrefixKeys):
        return PrefixPrompts(keys, width)
    return DualPrompts(keys, width) if isinstance(keys, DualKeys) else CodaPrompts(keys, width)


def _faults(keys: PromptKeys | TextPromptKeys, width: int, depth: int) -> Iterator[tuple[bool, str, str]]:
    """Yield whether a fault exists, its key and the rest of its message."""
    if isinstance(keys, L2PKeys | TextL2PKeys):
        yield keys.top > keys.pool, "top", f"found {keys.top}, allowed: at most pool ({keys.pool})"
        empty, other = keys.average == "prompts" and not keys.length, type(keys).model_fields["average"].default
        yield empty, "average", f"found prompts, allowed with length 0: {other}"
        if isinstance(keys, TextL2PKeys):
            yield keys.block >= depth, "block", f"found {keys.block}, allowed: 1 to {depth - 1}, a block of the model"
        return
    general = keys.general_blocks if isinstance(keys, DualKeys) else ()
    blocks = [*general, *keys.blocks]
    key = "general_blocks" if max(general, default=0) >= depth else "blocks"
    yield (
        max(blocks, default=0) >= depth,
        key,
        f"found {max(blocks, default=0)}, allowed: below the model's depth ({depth})",
    )
    yield len({*blocks}) < len(blocks), "blocks", f"found {blocks} in all, allowed: each block once"
    if isinstance(keys, CodaKeys):
        fits = f"allowed: at most pool ({keys.pool})"
        yield keys.per_task > keys.pool, "per_task", f"found {keys.per_task}, {fits}"
        orthonormal = f"allowed: at most the model's width ({width}), as its rows are orthonormal"
        yield keys.pool > width, "pool", f"found {keys.pool}, {orthonormal}"
