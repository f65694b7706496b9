"""A vision transformer, with slots for prompts. Dosovitskiy et al., ICLR 2021, arXiv 2010.11929.

Tensors have timm's names, so that its files of weights fit. Attention is written out in plain layers, so that methods
can access the inputs and gradients of each.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le, doc
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from raysim.config.block import Allowed
from raysim.models.prompt_keys import CodaKeys, DualKeys, L2PKeys, PrefixKeys
from raysim.models.prompts import Filled, Prefixes, Prompts, make_prompts
from raysim.models.stages import Stage, StagedNetwork
from raysim.system.errors import ConfigError

EPSILON = 1e-6  # of LayerNorm, as in the published weights; torch's own is 1e-5
HEAD_WIDTH = 64  # of all published sizes


class Attention(nn.Module):
    """Self-attention of several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.softmax = nn.Softmax(-1)

    def forward(self, x: Tensor, prefix: tuple[Tensor, Tensor] | None) -> Tensor:
        """Return the mixed tokens [B, L, W] of x [B, L, W].

        A prefix is a pair [B, P, W] of keys and values. All tokens attend to them in addition to the tokens' own.
        """
        query, key, value = self.qkv(x).chunk(3, -1)
        if prefix is not None:
            key, value = torch.cat([prefix[0], key], 1), torch.cat([prefix[1], value], 1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value))
        scores = query @ key.transpose(2, 3) / sqrt(query.shape[-1])  # [B, heads, L, P + L]
        mixed: Tensor = self.proj((self.softmax(scores) @ value).transpose(1, 2).flatten(2))
        return mixed


class FeedForward(nn.Module):
    """Linear - GELU - linear, for each token."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return [B, L, W] of x [B, L, W]."""
        y: Tensor = self.fc2(self.act(self.fc1(x)))
        return y


class VisionBlock(nn.Module):
    """x + attention(norm(x)), then x + feedforward(norm(x)), for x [B, L, W]."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, EPSILON), nn.LayerNorm(width, EPSILON)
        self.attn, self.mlp = Attention(width, heads), FeedForward(width, hidden)

    def forward(self, x: Tensor, prefix: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Return x [B, L, W] after the block. See `Attention` for the prefix."""
        x = x + self.attn(self.norm1(x), prefix)
        x = x + self.mlp(self.norm2(x))
        return x


class PatchEmbedding(nn.Module):
    """A vector for each square patch of the images."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        """Return the patches [B, N, W] of images [B, channels, H, W], row by row."""
        patches: Tensor = self.proj(x).flatten(2).transpose(1, 2)
        return patches


class VisionTransformer(StagedNetwork):
    """Patches, a class token and position codes - blocks - norm - the class token - linear.

    Args:
        shape: channels, height and width of the images as the patches see them.
        outputs: the number of logits.
        width: the numbers of a token's vector.
        blocks: the blocks.
        patch: the height and width of a patch.
        resized: whether images of other sizes are resized first (bilinear).

    Attributes:
        grid: the rows and columns of patches.
        prompts: the module that fills the slots, or None.
    """

    prompts: Prompts | None

    def __init__(
        self,
        shape: tuple[int, int, int],
        outputs: int,
        width: int,
        blocks: list[VisionBlock],
        patch: int,
        resized: bool,
    ) -> None:
        super().__init__()
        channels, height, length = shape
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + (height // patch) * (length // patch), width))
        self.patch_embed = PatchEmbedding(channels, width, patch)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, EPSILON)
        self.register_module("prompts", None)  # its place is before the head's
        self.head = nn.Linear(width, outputs)
        self.grid = (height // patch, length // patch)
        self._size = (height, length) if resized else None
        self._draw()

    def _draw(self) -> None:
        """Draw the initial weights as timm does: smaller ones than torch's."""
        nn.init.normal_(self.cls_token, std=1e-6)
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def add_prompts(self, prompts: Prompts) -> None:
        """Fill the slots with prompts, and freeze all parameters except theirs and the head's."""
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.startswith("head."))
        self.prompts = prompts

    def stages(self) -> Sequence[Stage]:
        """Return the stages: patches, each block, the norm and the head. With prompts, the query is before them.

        What lies before the first prompts is one stage with the query's pass. It returns the query as the first token.
        """
        embedding, head = (self.cls_token, self.pos_embed, self.patch_embed), Stage(self.head, (self.head,))
        prompts, trunk = self.prompts, (self.blocks, self.norm)
        if prompts is None:
            blocks = [Stage(block, (block,)) for block in self.blocks]
            return [Stage(self._embed, embedding), *blocks, Stage(self._class_token, (self.norm,)), head]
        prompted = Stage(lambda x: self._prompt(prompts, x), (*embedding, *trunk, prompts))
        return [Stage(lambda x: self._query(prompts, x), (*embedding, *trunk)), prompted, head]

    def features(self, x: Tensor) -> Tensor:
        """Return the head's inputs [B, W]: the class token's output, or the mean of the tokens that prompts name."""
        for stage in self.stages()[self.begin : -1]:
            x = stage.run(x)
        return x

    def _embed(self, x: Tensor) -> Tensor:
        """Return the class token and the patches [B, 1 + N, W] with their position codes."""
        if self._size is not None and x.shape[2:] != self._size:
            x = functional.interpolate(x, self._size, mode="bilinear", antialias=True)
        patches: Tensor = self.patch_embed(x)
        class_token = (self.cls_token + self.pos_embed[:, :1]).expand(len(x), -1, -1)
        return torch.cat([class_token, patches + self.pos_embed[:, 1:]], 1)

    def _class_token(self, x: Tensor) -> Tensor:
        """Return the class token [B, W] of the blocks' normalized outputs [B, L, W]."""
        y: Tensor = self.norm(x)[:, 0]
        return y

    def _query(self, prompts: Prompts, x: Tensor) -> Tensor:
        """Return the queries, and the tokens [B, 2 + N, W] in front of the first block with prompts.

        Prompts that do not ask have the class token's input in place of the query.
        """
        tokens = self._embed(x)
        with torch.no_grad():
            query = self._run(tokens, {})[:, :1] if prompts.asks else tokens[:, :1]
        for block in self.blocks[: prompts.first_block]:
            tokens = block(tokens)
        return torch.cat([query, tokens], 1)

    def _prompt(self, prompts: Prompts, x: Tensor) -> Tensor:
        """Return the head's inputs [B, W] of what `_query` returns."""
        filled = prompts(x[:, 0].detach())
        y = self._run(self._prompted(filled, x[:, 1:]), filled.prefixes, prompts.first_block)
        return y[:, slice(*filled.averaged)].mean(1)

    def _prompted(self, filled: Filled, plain: Tensor) -> Tensor:
        """Return the tokens [B, L, W] with the prompts, if any, after the class token."""
        if filled.tokens is None or filled.codes is None:
            return plain
        codes = [self.pos_embed[0, :1], filled.codes]
        class_token = self.cls_token.expand(len(plain), -1, -1)
        front = torch.cat([class_token, filled.tokens], 1) + torch.cat(codes[::-1] if filled.shifted else codes)
        return torch.cat([front, plain[:, 1:]], 1)

    def _run(self, x: Tensor, prefixes: Prefixes, first: int = 0) -> Tensor:
        """Return the normalized outputs [B, L, W] of the blocks, from the first of these on."""
        for number, block in enumerate(self.blocks[first:], first):
            x = block(x, prefixes.get(number))
        y: Tensor = self.norm(x)
        return y


def vit(
    shape: tuple[int, ...],
    classes: int,
    *,
    width: Annotated[int, Ge(1), doc("numbers of a token's vector: Tiny 192, Small 384, Base 768, Large 1024")] = 192,
    depth: Annotated[int, Ge(1), Le(1000), doc("blocks: 12 in Tiny, Small and Base, 24 in Large")] = 12,
    heads: Annotated[
        Annotated[int, Ge(1)] | None, doc("of the attention in each block; null is width / 64, as in all sizes")
    ] = None,
    mlp_ratio: Annotated[float, Gt(0), Le(100), doc("the width of a block's hidden layer, in widths")] = 4.0,
    patch: Annotated[int, Ge(1), doc("height and width of a patch")] = 16,
    input_size: Annotated[
        Annotated[int, Ge(1), Le(4096)] | None, doc("height and width made of the images; null leaves them")
    ] = 224,
    prompts: Annotated[
        Annotated[L2PKeys | DualKeys | CodaKeys | PrefixKeys, Field(discriminator="kind")] | None,
        Allowed("null or a block with kind: l2p, dual, coda or prefix, and the keys that this has"),
        doc("trained prompts; all other weights except the head's are then frozen"),
    ] = None,
) -> nn.Module:
    """A vision transformer by width, depth and patch, with timm's names, and prompts (Dosovitskiy et al., ICLR 2021).

    Raises:
        ConfigError: the samples are not images, the patches do not fill them, or the number of heads does not divide
            the width.
    """
    if len(shape) != 3:
        raise ConfigError(f"model vit: found samples of shape {shape}, allowed: images [channels, height, width]")
    size = shape[1:] if input_size is None else (input_size, input_size)
    if size[0] % patch or size[1] % patch:
        key = "patch" if input_size is None else "input_size"
        problem = f"found patches of {patch} for images of {size[0]} x {size[1]}, allowed: a multiple of the patch"
        raise ConfigError(f"model.{key}: {problem}")
    heads = max(1, width // HEAD_WIDTH) if heads is None else heads
    if width % heads:
        raise ConfigError(f"model.heads: found {heads}, allowed: a number that divides model.width ({width})")
    blocks = [VisionBlock(width, heads, max(1, int(width * mlp_ratio))) for _ in range(depth)]
    network = VisionTransformer((shape[0], *size), classes, width, blocks, patch, input_size is not None)
    if prompts is not None:
        network.add_prompts(make_prompts(prompts, width, depth))
    return network
