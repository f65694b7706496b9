"""Files of vision transformers' weights: other libraries' names and shapes, turned into raysim's, which are timm's.

| library | networks |
|---|---|
| torchvision | VisionTransformer: vit_b_16 and the like |
| Hugging Face | ViTModel, ViTForImageClassification and the DeiT ones, with the names of versions 4 and 5 |
| timm | VisionTransformer: vit_*, deit_* |

Left out are Hugging Face's pooler and mask token, and a distilled DeiT's second token with its head and position code.
"""

import re
from collections.abc import Iterator, Mapping
from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.models.efficientnet_layout import is_of_efficientnet_pytorch, rename_efficientnet
from raysim.models.vit import VisionTransformer

_LAYER = r"(?:vit\.|deit\.)?(?:encoder\.layer|layers)\.(\d+)\."  # of Hugging Face, versions 4 and 5
_EMBEDDINGS = r"(?:vit\.|deit\.)?embeddings\."
_VISION_LAYER = r"encoder\.layers\.encoder_layer_(\d+)\."  # of torchvision

RULES: tuple[tuple[str, str], ...] = (
    # torchvision
    (r"class_token", "cls_token"),
    (r"conv_proj\.(\w+)", r"patch_embed.proj.\1"),
    (r"encoder\.pos_embedding", "pos_embed"),
    (_VISION_LAYER + r"ln_([12])\.(\w+)", r"blocks.\1.norm\2.\3"),
    (_VISION_LAYER + r"self_attention\.in_proj_(\w+)", r"blocks.\1.attn.qkv.\2"),
    (_VISION_LAYER + r"self_attention\.out_proj\.(\w+)", r"blocks.\1.attn.proj.\2"),
    (_VISION_LAYER + r"mlp\.(?:0|linear_1)\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
    (_VISION_LAYER + r"mlp\.(?:3|linear_2)\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
    (r"encoder\.ln\.(\w+)", r"norm.\1"),
    (r"heads\.head\.(\w+)", r"head.\1"),
    # Hugging Face
    (_EMBEDDINGS + r"cls_token", "cls_token"),
    (_EMBEDDINGS + r"position_embeddings", "pos_embed"),
    (_EMBEDDINGS + r"patch_embeddings\.projection\.(\w+)", r"patch_embed.proj.\1"),
    (_LAYER + r"layernorm_before\.(\w+)", r"blocks.\1.norm1.\2"),
    (_LAYER + r"layernorm_after\.(\w+)", r"blocks.\1.norm2.\2"),
    (_LAYER + r"attention\.(?:attention\.query|q_proj)\.(\w+)", r"blocks.\1.attn.q.\2"),
    (_LAYER + r"attention\.(?:attention\.key|k_proj)\.(\w+)", r"blocks.\1.attn.k.\2"),
    (_LAYER + r"attention\.(?:attention\.value|v_proj)\.(\w+)", r"blocks.\1.attn.v.\2"),
    (_LAYER + r"attention\.(?:output\.dense|o_proj)\.(\w+)", r"blocks.\1.attn.proj.\2"),
    (_LAYER + r"(?:intermediate\.dense|mlp\.fc1)\.(\w+)", r"blocks.\1.mlp.fc1.\2"),
    (_LAYER + r"(?:output\.dense|mlp\.fc2)\.(\w+)", r"blocks.\1.mlp.fc2.\2"),
    (r"(?:vit\.|deit\.)?layernorm\.(\w+)", r"norm.\1"),
    (r"(?:cls_)?classifier\.(\w+)", r"head.\1"),
)
"""Regular expression of a whole name in a file -> raysim's name."""

LEFT_OUT = re.compile(
    r"(?:vit\.|deit\.)?pooler\.dense\.\w+|" + _EMBEDDINGS + r"mask_token|distillation_classifier\.\w+|head_dist\.\w+"
)
SECOND_TOKEN = re.compile(_EMBEDDINGS + r"distillation_token|dist_token")
PARTS = tuple("qkv")
PATCHES = "patch_embed.proj.weight"


def fit_weights(module: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's tensors with the names and shapes of a vision transformer.

    For timm's EfficientNets, see `rename_efficientnet`. For other modules, return `state`.

    - Names become raysim's. Names without a rule are unchanged.
    - Separate layers for queries, keys and values become one.
    - Position codes for another square grid of patches are interpolated (bicubic, antialiased), as timm does.
    - The patches' weights for RGB are summed if images are gray. This equals gray images that become RGB.
    - Prompts that the file does not have keep the module's initial values.
    """
    if is_of_efficientnet_pytorch(module, state):
        return rename_efficientnet(module, state)
    if not isinstance(module, VisionTransformer):
        return state
    second = any(map(SECOND_TOKEN.fullmatch, state))
    fitted = _join_attention({
        _rename(name): tensor
        for name, tensor in state.items()
        if not LEFT_OUT.fullmatch(name) and not SECOND_TOKEN.fullmatch(name)
    })  # fmt: skip
    if (codes := fitted.get("pos_embed")) is not None and codes.dim() == 3:
        fitted["pos_embed"] = _fit_codes(codes, 1 + second, module.grid)
    patches = fitted.get(PATCHES)
    if patches is not None and patches.dim() == 4 and module.patch_embed.proj.in_channels == 1:
        fitted[PATCHES] = patches.sum(1, keepdim=True)
    prompts = {name: value for name, value in module.state_dict().items() if name.startswith("prompts.")}
    return prompts | fitted


def describe_fit(module: nn.Module, state: Mapping[str, Tensor], fitted: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield what `fit_weights` left out of a file or changed, beyond names."""
    if not isinstance(module, VisionTransformer):
        return
    left = [name for name in state if LEFT_OUT.fullmatch(name) or SECOND_TOKEN.fullmatch(name)]
    if left:
        yield f"left out of the file: {', '.join(left)}"
    before = {_rename(name): tensor.shape for name, tensor in state.items()}
    if "pos_embed" in before and (old := before["pos_embed"]) != (new := fitted["pos_embed"].shape):
        yield f"position codes {[*old]} of the file became {[*new]}"
    if before.get(PATCHES) not in (None, fitted[PATCHES].shape):
        yield "the weights of patches were summed over the channels, for gray images"
    if prompts := [name for name in fitted if name.startswith("prompts.") and name not in before]:
        yield f"initial values, which the file lacks: {', '.join(prompts)}"


def _rename(name: str) -> str:
    for pattern, replacement in RULES:
        if found := re.fullmatch(pattern, name):
            return found.expand(replacement)
    return name


def _join_attention(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Join `attn.q`, `attn.k` and `attn.v` of each block into `attn.qkv`."""
    joined: dict[str, Tensor] = {}
    for name, tensor in state.items():
        block, _, rest = name.rpartition(".attn.")
        part, _, kind = rest.partition(".")
        names = [f"{block}.attn.{other}.{kind}" for other in PARTS]
        if not block or part not in PARTS or not all(other in state for other in names):
            joined[name] = tensor
        elif part == PARTS[0]:
            joined[f"{block}.attn.qkv.{kind}"] = torch.cat([state[other] for other in names])
    return joined


def _fit_codes(codes: Tensor, leading: int, grid: tuple[int, int]) -> Tensor:
    """Return the codes [1, 1 + N, W] of the class token and a grid of N patches, from those of another square grid.

    The first `leading` codes are of tokens that are no patches. Only the class token's is kept. Codes that are of no
    square grid are unchanged.
    """
    side = isqrt(codes.shape[1] - leading)
    if side * side != codes.shape[1] - leading or not side:
        return codes
    if leading == 1 and (side, side) == grid:
        return codes  # itself, as it may be mapped from the file
    patches = codes[:, leading:]
    if (side, side) != grid:
        images = patches.transpose(1, 2).unflatten(2, (side, side)).float()
        resized = functional.interpolate(images, grid, mode="bicubic", antialias=True, align_corners=False)
        patches = resized.flatten(2).transpose(1, 2).to(codes.dtype)
    return torch.cat([codes[:, :1], patches], 1)
