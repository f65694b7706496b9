"""An auxiliary-classifier GAN: a classifier that is also a critic. Odena, Olah and Shlens, ICML 2017, arXiv 1610.09585.

The critic is the model with a second, linear head on the same features, which tells real images from generated ones.
The generator makes an image of a class from noise. The networks are those of FedCIL's code (Qi et al., ICLR 2023).
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.api import FlatModel, LocalOptimizer

Moments = tuple[tuple[float, ...], tuple[float, ...]]
"""The mean and the standard deviation of each channel with which the model's inputs are normalized."""


@dataclass(frozen=True)
class Optimizers:
    """Those of the model, its real/fake head and the generator, and their learning rate."""

    model: LocalOptimizer
    realness: LocalOptimizer
    generator: LocalOptimizer
    lr: float


@dataclass(frozen=True)
class Acgan:
    """An AC-GAN in training."""

    model: FlatModel
    """The classifier; its `head` is set."""
    realness: FlatModel
    """The second head: features [n, d] to [n, 1], above 0 for real images."""
    generator: FlatModel
    optimizers: Optimizers
    loss: Callable[[Tensor, Tensor], Tensor]
    """The loss of class logits [n, classes] and labels [n]."""
    labels: Tensor
    """int64: the classes of generated images."""
    classes: int
    """The number of the model's outputs."""
    weight: float
    """The weight of the terms on generated images and of real or fake. At 0 the critic is a classifier."""
    scope: Callable[[], AbstractContextManager[None]]
    """The random stream of the passes that FedAvg does not have."""

    def judge(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the class logits [n, classes] and the real/fake logits [n] of images."""
        logits, features = self.model.with_features(x)
        real: Tensor = self.realness(features).squeeze(1)
        return logits, real

    def critic_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return L_D = CE(x, y) + weight (BCE(x, real) + BCE(x', fake) + CE(x', y')), with fresh images x' of G."""
        if not self.weight:
            return self.loss(self.model(x), y)
        logits, real = self.judge(x)
        with self.scope():
            fakes, labels = self.draw(len(x))
            fake_logits, fooled = self.judge(fakes.detach())
        told = is_real(real, True) + is_real(fooled, False) + self.loss(fake_logits, labels)
        return self.loss(logits, y) + self.weight * told

    def generator_loss(self, count: int) -> Tensor:
        """Return L_G = BCE(x', real) + CE(x', y') on this many fresh images x'."""
        fakes, labels = self.draw(count)
        logits, fooled = self.judge(fakes)
        return is_real(fooled, True) + self.loss(logits, labels)

    def step(self, loss: Tensor, count: int) -> None:
        """Take a step of the critic along this loss, then a step of the generator on this many images."""
        model, realness, by = self.model, self.realness, self.optimizers
        model.gradient.zero_()
        realness.gradient.zero_()
        loss.backward()
        by.model.step(model.parameters, model.gradient, by.lr)
        if not self.weight:
            return
        by.realness.step(realness.parameters, realness.gradient, by.lr)
        with self.scope():
            gradient = self.generator.gradient_of(self.generator_loss(count))
        by.generator.step(self.generator.parameters, gradient, by.lr)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """Return this many images with labels, uniform over `labels`, from torch's current generator.

        BatchNorm needs two images, so there are at least two. In training mode, the generator's statistics move.
        """
        return draw_images(self.generator, self.labels, self.classes, max(count, 2))


def is_real(logits: Tensor, real: bool) -> Tensor:
    """Return the binary cross-entropy of real/fake logits [n], if all images are real, or all fake."""
    return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, float(real)))


def draw_images(generator: FlatModel, labels: Tensor, classes: int, count: int) -> tuple[Tensor, Tensor]:
    """Return images [count, ...] of a generator and their labels, uniform over `labels` (int64, not empty)."""
    device = generator.device
    y = labels[torch.randint(len(labels), (count,), device=device)]
    return generator(noise_of(y, classes, generator)), y


def noise_of(y: Tensor, classes: int, generator: FlatModel) -> Tensor:
    """Return z [n, classes + noise]: the label as one-hot vector, then numbers from N(0, 1)."""
    size = next(iter(generator.layout.values()))[1]  # the first layer is linear
    noise = torch.randn(len(y), size - classes, dtype=generator.dtype, device=generator.device)
    return torch.cat([functional.one_hot(y, classes).to(noise), noise], 1)


def make_generator(
    kind: Literal["mnist", "cifar"],
    shape: Sequence[int],
    inputs: int,
    width: int,
    moments: Moments | None,
    dtype: torch.dtype,
) -> nn.Module:
    """Return a generator: z [n, inputs] to the model's inputs [n, channels, height, width].

    It begins with a grid of an eighth of the image's size, rounded up, and doubles it three times. The middle of the
    result is the image. `width` is the number of channels of its last hidden layer.
    """
    channels, *size = shape
    grid = [-(-extent // 8) for extent in size]
    layers: list[nn.Module] = []
    if kind == "mnist":
        first = 8 * width * grid[0] * grid[1]
        layers += [nn.Linear(inputs, first), nn.Unflatten(1, (8 * width, *grid)), nn.BatchNorm2d(8 * width), nn.ReLU()]
        for outputs in (4 * width, 2 * width, width):
            layers += [nn.ConvTranspose2d(2 * outputs, outputs, 4, stride=2, padding=1)]
            layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.Conv2d(width, channels, 3, padding=1)]
    else:
        layers += [nn.Linear(inputs, 8 * width), nn.Unflatten(1, (8 * width, 1, 1))]
        layers += [nn.ConvTranspose2d(8 * width, 4 * width, (grid[0], grid[1]), bias=False)]
        for outputs in (2 * width, width):
            layers += [nn.BatchNorm2d(2 * outputs), nn.ReLU()]
            layers += [nn.ConvTranspose2d(2 * outputs, outputs, 4, stride=2, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.ConvTranspose2d(width, channels, 4, stride=2, padding=1, bias=False)]
    return nn.Sequential(*layers, nn.Tanh(), AsInputs(size, moments)).to(dtype)


class AsInputs(nn.Module):
    """Maps values from -1 to 1 to the model's inputs: pixels from 0 to 1, normalized as the dataset is."""

    def __init__(self, size: Sequence[int], moments: Moments | None) -> None:
        super().__init__()
        self.size = (*size,)
        mean, std = moments or ((0.0,), (1.0,))
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the middle of images [n, channels, h, w], as the model's inputs."""
        (height, width), (top, left) = (
            self.size,
            ((whole - part) // 2 for whole, part in zip(x.shape[2:], self.size, strict=True)),
        )
        x = x[:, :, top : top + height, left : left + width]
        return ((x + 1) / 2 - self.get_buffer("mean")) / self.get_buffer("std")
