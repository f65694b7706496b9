"""Files of EfficientNets with the names of EfficientNet-PyTorch, turned into timm's.

The packages efficientnet-pytorch and efficientnet-lite-pytorch have these names. Their weights were converted from
TensorFlow, so they need TensorFlow's padding and epsilon: timm's architectures tf_efficientnet_*.
"""

import re
from collections.abc import Mapping

from torch import Tensor, nn

from raysim.system.errors import ConfigError

STEM = "_conv_stem.weight"
EPSILON = 1e-3  # of BatchNorm in TensorFlow's EfficientNets
OUTER = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
SQUEEZE = {"_se_reduce": "se.conv_reduce", "_se_expand": "se.conv_expand"}
EXPANDED = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
    **SQUEEZE,
}
SEPARABLE = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2", **SQUEEZE}
"""Layer of a block in a file -> timm's: of blocks that expand their channels first, and of blocks that do not."""


def is_of_efficientnet_pytorch(module: nn.Module, state: Mapping[str, Tensor]) -> bool:
    """Return whether a file has EfficientNet-PyTorch's names, and a network timm's."""
    return STEM in state and STEM not in module.state_dict() and hasattr(module, "conv_stem")


def rename_efficientnet(module: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's tensors with timm's names. Names without a rule are unchanged.

    A file numbers all blocks, timm those of each group of blocks.

    Raises:
        ConfigError: the network pads or normalizes in another way than the one that the weights were trained in.
    """
    if (epsilon := getattr(getattr(module, "bn1", None), "eps", EPSILON)) != EPSILON:
        found = getattr(module, "default_cfg", {}).get("architecture", "an EfficientNet")
        problem = f"found weights that were converted from TensorFlow for {found} with a BatchNorm epsilon of {epsilon}"
        raise ConfigError(f"model.weights: {problem}; allowed: model.architecture: tf_{found}")
    groups = [[*group.children()] for group in module.get_submodule("blocks").children()]
    places = [f"blocks.{i}.{j}" for i, group in enumerate(groups) for j, _ in enumerate(group)]
    expanded = {name.split(".")[1] for name in state if "._expand_conv." in name}
    return {_rename(name, places, expanded): tensor for name, tensor in state.items()}


def _rename(name: str, places: list[str], expanded: set[str]) -> str:
    if found := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name):
        number, layer, leaf = found.groups()
        layers = EXPANDED if number in expanded else SEPARABLE
        known = layer in layers and int(number) < len(places)
        return f"{places[int(number)]}.{layers[layer]}.{leaf}" if known else name
    layer, _, leaf = name.rpartition(".")
    return f"{OUTER[layer]}.{leaf}" if layer in OUTER else name
