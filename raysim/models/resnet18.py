"""ResNet-18 for small images: He et al., CVPR 2016, arXiv 1512.03385, with a stem for CIFAR-sized images."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.models.inputs import require_images
from raysim.models.stages import Stage, StagedNetwork


class TwoConvolutions(nn.Module):
    """Two 3x3 convolutions with BatchNorm, and a shortcut, which a subclass has."""

    shortcut: Callable[[Tensor], Tensor]

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return ReLU(shortcut(x) + conv(ReLU(conv(x)))), each convolution normalized."""
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class BasicBlock(TwoConvolutions):
    """A block with a 1x1 convolution as its shortcut if the shape changes."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__(channels, width, stride)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
            )


class ResNet18(StagedNetwork):
    """A 3x3 stem of stride 1 without pooling, four stages of two blocks, global average pooling, a linear head."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.linear = nn.Linear(512, classes)

    def stages(self) -> Sequence[Stage]:
        """Return the stages: the stem, the four stages of blocks, the average and the head."""
        layers = (self.layer1, self.layer2, self.layer3, self.layer4)
        return [
            Stage(lambda x: functional.relu(self.bn1(self.conv1(x))), (self.conv1, self.bn1)),
            *(Stage(layer, (layer,)) for layer in layers),
            Stage(lambda x: torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1), ()),
            Stage(self.linear, (self.linear,)),
        ]


def resnet18(shape: tuple[int, ...], classes: int) -> nn.Module:
    """ResNet-18 for small images: 3x3 stem, no pooling; 11,173,962 parameters on CIFAR-10 (He et al., CVPR 2016)."""
    require_images("resnet18", shape)
    return ResNet18(shape[0], classes)
