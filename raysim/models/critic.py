"""FedCIL's critic as a classifier: the body of an AC-GAN. Qi, Zhao and Li, ICLR 2023.

A critic has two heads on the same features: the classes, which are the model's outputs, and whether an image is real.
The method `fedcil` adds the second head to any model.
"""

from typing import Annotated, Literal

import torch
from annotated_types import Ge, doc
from torch import nn


def critic(
    shape: tuple[int, ...],
    classes: int,
    *,
    variant: Annotated[
        Literal["mnist", "cifar"], doc("three 4x4 convolutions, or six of 3x3 with BatchNorm and dropout")
    ] = "mnist",
    width: Annotated[int, Ge(4), doc("channels of the first convolution; a quarter of them for cifar")] = 64,
) -> nn.Module:
    """FedCIL's critic, an AC-GAN's classifier: 697,802 parameters on 32 x 32 gray images (Qi et al., ICLR 2023)."""
    body = nn.Sequential(*(_of_mnist if variant == "mnist" else _of_cifar)(shape[0], width), nn.Flatten())
    with torch.no_grad():
        (features,) = body.eval()(torch.zeros(1, *shape)).shape[1:]
    return nn.Sequential(body, nn.Linear(features, classes))


def _of_mnist(channels: int, width: int) -> list[nn.Module]:
    """Return the layers of the code's critic for MNIST. Its BatchNorm layers are not used, so they are left out."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(inputs, outputs, 4, stride=2, padding=1), nn.LeakyReLU(0.01)]
    return layers


def _of_cifar(channels: int, width: int) -> list[nn.Module]:
    """Return the layers of the code's critic for CIFAR-10; the first convolution has no BatchNorm."""
    layers, inputs = list[nn.Module](), channels
    for number in range(6):
        outputs = width * 2**number // 4
        layers.append(nn.Conv2d(inputs, outputs, 3, stride=2 - number % 2, padding=1, bias=False))
        layers += [nn.BatchNorm2d(outputs)] if number else []
        layers += [nn.LeakyReLU(0.2), nn.Dropout(0.5)]
        inputs = outputs
    return layers
