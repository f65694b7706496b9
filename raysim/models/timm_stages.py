"""The stages of timm's networks, for `model.cache`: EfficientNet, ResNet, VisionTransformer and ConvNeXt families."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from torch import Tensor, nn

from raysim.models.stages import Stage, StagedNetwork, links


class TimmStages(StagedNetwork):
    """A network of timm with its stages. Its tensors keep their names.

    Args:
        stages_of: it returns the network's stages after its preparation of images.
        network: the network. This one has the same layers.
    """

    def __init__(self, stages_of: Callable[[Any], Iterator[Stage]], network: nn.Module) -> None:
        super().__init__()
        for name, child in network.named_children():
            self.add_module(name, child)
        for name, parameter in network.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in network.named_buffers(recurse=False):
            self.register_buffer(name, buffer, name not in network._non_persistent_buffers_set)
        self.made_by = f"timm {version('timm')}"
        self._stages_of = stages_of
        self._whole = [network]  # in a list, so that its tensors do not have a second name

    def in_order(self) -> Sequence[Stage]:
        """Return the preparation of images, and the stages of the network."""
        (network,) = self._whole
        return [Stage(vars(network)["prepare"], ()), *self._stages_of(network)]


def _layers(*layers: nn.Module) -> Iterator[Stage]:
    yield from (Stage(link, (link,)) for layer in layers for link in links(layer))


def _efficientnet(network: Any) -> Iterator[Stage]:
    yield from _layers(network.conv_stem, network.bn1, network.blocks, network.conv_head, network.bn2)
    yield from _layers(network.global_pool, network.classifier)


def _resnet(network: Any) -> Iterator[Stage]:
    yield from _layers(network.conv1, network.bn1, network.act1, network.maxpool)
    yield from _layers(network.layer1, network.layer2, network.layer3, network.layer4, network.global_pool, network.fc)


def _convnext(network: Any) -> Iterator[Stage]:
    yield from _layers(network.stem)
    for stage in network.stages:
        yield from _layers(stage.downsample, stage.blocks)
    yield from _layers(network.norm_pre, *network.head.children())


def _vision_transformer(network: Any) -> Iterator[Stage]:
    def embed(x: Tensor) -> Tensor:
        embedded: Tensor = network.norm_pre(network.patch_drop(network._pos_embed(network.patch_embed(x))))
        return embedded

    codes = [parameter for _, parameter in network.named_parameters(recurse=False)]  # of positions and special tokens
    yield Stage(embed, (network.patch_embed, *codes, network.pos_drop, network.patch_drop, network.norm_pre))
    yield from _layers(network.blocks, network.norm)
    yield Stage(network.pool, () if network.attn_pool is None else (network.attn_pool,))
    yield from _layers(network.fc_norm, network.head_drop, network.head)


FAMILIES: Mapping[str, Callable[[Any], Iterator[Stage]]] = {
    "efficientnet.EfficientNet": _efficientnet,
    "resnet.ResNet": _resnet,
    "convnext.ConvNeXt": _convnext,
    "vision_transformer.VisionTransformer": _vision_transformer,
}
"""Module and class in timm.models -> the network's stages, which compute what its own forward pass does."""


def family_of(network: nn.Module) -> str | None:
    """Return the network's key in `FAMILIES`, or None."""
    module, _, name = type(network).__module__.rpartition(".")
    key = f"{name}.{type(network).__name__}"
    return key if module == "timm.models" and key in FAMILIES else None
