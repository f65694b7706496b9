"""A normalizing flow over feature vectors, given their class: Dinh et al., ICLR 2017, as AF-FCL's code builds it.

It has four layers. Each permutes the numbers of a vector, and scales and shifts the second half. A network computes
scale and shift from the first half and the class. It has two residual blocks (Durkan et al., NeurIPS 2019: nflows).
"""

from math import log, pi

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS, BLOCKS = 4, 2
LEAST_SCALE = 1e-3
SMALL = 1e-3  # the range of a block's last weights at first, so that it begins close to the identity


class ResidualBlock(nn.Module):
    """h + V s(U s(h)), gated by the class: times sigmoid(G y)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.gate = nn.Linear(classes, width)
        for tensor in (self.second.weight, self.second.bias):
            nn.init.uniform_(tensor, -SMALL, SMALL)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Return the block's output [n, width] for h [n, width] and one-hot classes y [n, classes]."""
        change = self.second(functional.leaky_relu(self.first(functional.leaky_relu(h))))
        result: Tensor = h + change * self.gate(y).sigmoid()
        return result


class Coupling(nn.Module):
    """A permutation and an affine coupling: the second half of the numbers becomes scale * it + shift.

    Args:
        order: the permutation, int64 [d].
        classes: the number of classes.
        width: the units of the network.
    """

    def __init__(self, order: Tensor, classes: int, width: int) -> None:
        super().__init__()
        self.order = nn.Buffer(order)
        self.kept, self.moved = len(order) // 2, len(order) - len(order) // 2
        self.first = nn.Linear(self.kept + classes, width)
        self.blocks = nn.ModuleList(ResidualBlock(width, classes) for _ in range(BLOCKS))
        self.last = nn.Linear(width, 2 * self.moved)

    def encode(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the layer's output [n, d] for x [n, d] and y [n, classes], and ln |det Jacobian| [n]."""
        kept, moved = x[:, self.order].split([self.kept, self.moved], 1)
        shift, scale = self._affine(kept, y)
        return torch.cat([kept, scale * moved + shift], 1), scale.log().sum(1)

    def decode(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the x of which `encode` returns z."""
        kept, moved = z.split([self.kept, self.moved], 1)
        shift, scale = self._affine(kept, y)
        return torch.cat([kept, (moved - shift) / scale], 1)[:, self.order.argsort()]

    def _affine(self, kept: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        h = self.first(torch.cat([kept, y], 1))
        for block in self.blocks:
            h = block(h, y)
        shift, raw = self.last(h).split(self.moved, 1)
        return shift, (raw + 2).sigmoid() + LEAST_SCALE


class ConditionalFlow(nn.Module):
    """Couplings between features and codes that are N(0, 1), given the class.

    The first two permutations reverse the numbers, the others are drawn from torch's generator.

    Args:
        features: d, the length of a feature vector, at least 2.
        classes: the number of classes.
        width: the units of the networks.
        dtype: of its parameters.
    """

    def __init__(self, features: int, classes: int, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        orders = [torch.arange(features).flip(0)] * 2 + [torch.randperm(features) for _ in range(LAYERS - 2)]
        self.features, self.classes = features, classes
        self.layers = nn.ModuleList(Coupling(order.clone(), classes, width) for order in orders)
        self.to(dtype)

    def encode(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the codes u [n, d] of features x [n, d] with labels y (int64 [n]), and ln q(x | y) [n]."""
        context, volume = self._one_hot(x, y), x.new_zeros(len(x))
        for layer in self.couplings:
            x, change = layer.encode(x, context)
            volume = volume + change
        return x, volume - (x.square().sum(1) + self.features * log(2 * pi)) / 2

    def decode(self, u: Tensor, y: Tensor) -> Tensor:
        """Return the features [n, d] with codes u [n, d] and labels y (int64 [n])."""
        context = self._one_hot(u, y)
        for layer in reversed(self.couplings):
            u = layer.decode(u, context)
        return u

    @property
    def couplings(self) -> list[Coupling]:
        """The layers, in the order of `encode`."""
        return [layer for layer in self.layers if isinstance(layer, Coupling)]

    def _one_hot(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.one_hot(y, self.classes).to(x.dtype)
