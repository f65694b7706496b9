"""ResNet-20 and its like, the residual networks for CIFAR-10 of He et al., CVPR 2016, arXiv 1512.03385, section 4.2."""

from collections.abc import Sequence
from typing import Annotated

import torch
from annotated_types import Ge, doc
from torch import Tensor, nn
from torch.nn import functional

from raysim.models.inputs import require_images
from raysim.models.resnet18 import TwoConvolutions
from raysim.models.stages import Stage, StagedNetwork
from raysim.system.errors import ConfigError

LAYERS = 6  # of the three groups of blocks, for each block in a group


class PlainBlock(TwoConvolutions):
    """A block with a shortcut without parameters (the paper's option A).

    If the shape changes, the shortcut takes every second pixel, and its further channels are zero.
    """

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__(channels, width, stride)
        self.stride, self.further = stride, width - channels

    def shortcut(self, x: Tensor) -> Tensor:
        """Return x, or x in the changed shape."""
        pixels = x[:, :, :: self.stride, :: self.stride]
        return functional.pad(pixels, (0, 0, 0, 0, 0, self.further)) if self.further else pixels


class SmallResNet(StagedNetwork):
    """A 3x3 stem of stride 1, three groups of blocks, global average pooling, a linear head.

    The second and the third group halve the image and double the channels.
    """

    def __init__(self, channels: int, classes: int, blocks: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _group(blocks, width, width, 1)
        self.layer2 = _group(blocks, width, 2 * width, 2)
        self.layer3 = _group(blocks, 2 * width, 4 * width, 2)
        self.linear = nn.Linear(4 * width, classes)

    def stages(self) -> Sequence[Stage]:
        """Return the stages: the stem, the groups of blocks, the average and the head."""
        return [
            Stage(lambda x: functional.relu(self.bn1(self.conv1(x))), (self.conv1, self.bn1)),
            *(Stage(group, (group,)) for group in (self.layer1, self.layer2, self.layer3)),
            Stage(lambda x: torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1), ()),
            Stage(self.linear, (self.linear,)),
        ]


def _group(blocks: int, channels: int, width: int, stride: int) -> nn.Sequential:
    further = [PlainBlock(width, width, 1) for _ in range(blocks - 1)]
    return nn.Sequential(PlainBlock(channels, width, stride), *further)


def small_resnet(
    shape: tuple[int, ...],
    classes: int,
    *,
    depth: Annotated[int, Ge(8), doc("6 n + 2 layers: 8, 14, 20, ..; the paper has 20, 32, 44, 56 and 110")] = 20,
    width: Annotated[int, Ge(1), doc("the channels of the first blocks; the last ones have 4 times as many")] = 16,
) -> nn.Module:
    """ResNet-20, 32, .. for small images: depth, width; 269,722 parameters on CIFAR-10 (He et al., CVPR 2016)."""
    require_images("small_resnet", shape)
    if depth % LAYERS != 2:
        raise ConfigError(f"model.depth: found {depth}, allowed: 6 n + 2, such as 8, 14, 20 or 32")
    return SmallResNet(shape[0], classes, depth // LAYERS, width)
