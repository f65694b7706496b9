"""Tiny YOLO: a small one-stage detector (Redmon and Farhadi, CVPR 2017, arXiv 1612.08242; tiny-yolo-voc.cfg)."""

from collections import OrderedDict
from math import inf, log2
from typing import Annotated, Literal

import torch
from annotated_types import Ge, doc
from torch import Tensor, nn

from raysim.models.inputs import require_images

FACTORS = (1, 2, 4, 8, 16, 32, 64, 64)  # channels of the 3x3 convolutions, in widths
EARLY = 5  # convolutions before the 2x2 pooling of stride 1


class TinyYolo(nn.Module):
    """Eight 3x3 convolutions with BatchNorm and leaky ReLU, max pooling between them, and a 1x1 convolution."""

    def __init__(self, channels: int, outputs: int, width: int, stride: int, batch_norm: bool) -> None:
        super().__init__()
        layers = OrderedDict[str, nn.Module]()
        for number, factor in enumerate(FACTORS, 1):
            layers[f"conv{number}"] = nn.Conv2d(channels, factor * width, 3, padding=1, bias=not batch_norm)
            if batch_norm:
                layers[f"bn{number}"] = nn.BatchNorm2d(factor * width)
            layers[f"activation{number}"] = nn.LeakyReLU(0.1)
            if number <= log2(stride):
                layers[f"pool{number}"] = nn.MaxPool2d(2, ceil_mode=True)
            elif number == EARLY + 1:  # as darknet's: each output is the maximum of a cell and the next ones
                layers["pad"] = nn.ConstantPad2d((0, 1, 0, 1), -inf)
                layers["pool"] = nn.MaxPool2d(2, 1)
            channels = factor * width
        layers["head"] = nn.Conv2d(channels, outputs, 1)
        self.layers = nn.Sequential(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of each cell [B, rows, columns, outputs] of images [B, channels, H, W]."""
        outputs: Tensor = self.layers(x)
        return outputs.permute(0, 2, 3, 1).contiguous(memory_format=torch.contiguous_format)


def tiny_yolo(
    shape: tuple[int, ...],
    classes: int,
    *,
    width: Annotated[int, Ge(1), doc("channels of the first convolution; the last ones have 64 times as many")] = 16,
    stride: Annotated[Literal[8, 16, 32], doc("pixels of a cell's side; the objective's key of that name")] = 32,
    batch_norm: Annotated[bool, doc("whether convolutions have BatchNorm; else a bias")] = True,
) -> nn.Module:
    """Tiny YOLOv2 for images of any size: 15,861,773 parameters for VOC's 125 outputs (Redmon and Farhadi, CVPR 2017).

    The grid has a cell for each `stride` pixels: 13 x 13 for 416 x 416.

    Raises:
        ConfigError: the samples are not images.
    """
    require_images("tiny_yolo", shape)
    return TinyYolo(shape[0], classes, width, stride, batch_norm)
