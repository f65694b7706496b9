"""A vision transformer by its formulas (Dosovitskiy et al., ICLR 2021), of any width and depth.

It has two heads of attention, and patches of 4 x 4. Layers may have additions to their weights, and blocks prefixes of
keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import gelu

Named = Mapping[str, Tensor]
"""Parameters by raysim's names."""

HEADS, PATCH = 2, 4


def features(
    t: Named,
    x: Tensor,
    added: Named | None = None,
    prefixes: Mapping[int, tuple[Tensor, Tensor]] | None = None,
    inputs: dict[str, Tensor] | None = None,
) -> Tensor:
    """Return the class token's outputs [n, W] after the last norm, on images [n, 1, H, H].

    Args:
        t: the parameters.
        x: the images.
        added: what is added to the weights of layers, by the layer's name.
        prefixes: block -> keys and values [n, m, W] in front of the attention's own.
        inputs: where the inputs [rows, d] of each layer with an addition are put.
    """

    def layer(name: str, rows: Tensor) -> Tensor:
        own = f"{name}.base" if f"{name}.base.weight" in t else name
        weight = t[f"{own}.weight"]
        if added is not None and name in added:
            weight = weight + added[name]
            if inputs is not None:
                inputs[name] = rows.flatten(0, -2)
        return rows @ weight.T + t[f"{own}.bias"]

    def norm(name: str, rows: Tensor) -> Tensor:
        center = rows - rows.mean(-1, keepdim=True)
        return center / (center.square().mean(-1, keepdim=True) + 1e-6).sqrt() * t[f"{name}.weight"] + t[f"{name}.bias"]

    side, width = x.shape[2] // PATCH, t["cls_token"].shape[2]
    cut = x.reshape(len(x), side, PATCH, side, PATCH).transpose(2, 3).flatten(3).flatten(1, 2)  # gray images
    patches = cut @ t["patch_embed.proj.weight"].flatten(1).T + t["patch_embed.proj.bias"]
    tokens = torch.cat([t["cls_token"].expand(len(x), 1, width), patches], 1) + t["pos_embed"]
    for number in range(sum(name.endswith("norm1.weight") for name in t)):
        block, mixed = f"blocks.{number}", []
        q, k, v = layer(f"{block}.attn.qkv", norm(f"{block}.norm1", tokens)).split(width, 2)
        if prefixes is not None and number in prefixes:
            k, v = torch.cat([prefixes[number][0], k], 1), torch.cat([prefixes[number][1], v], 1)
        own = width // HEADS
        for part in (slice(i * own, (i + 1) * own) for i in range(HEADS)):
            mixed.append((q[..., part] @ k[..., part].mT / own**0.5).softmax(2) @ v[..., part])
        tokens = tokens + layer(f"{block}.attn.proj", torch.cat(mixed, 2))
        hidden = gelu(layer(f"{block}.mlp.fc1", norm(f"{block}.norm2", tokens)))
        tokens = tokens + layer(f"{block}.mlp.fc2", hidden)
    return norm("norm", tokens[:, 0])


def scores(t: Named, found: Tensor) -> Tensor:
    """Return the head's logits of features [n, W]."""
    return found @ t["head.weight"].T + t["head.bias"]
