"""The network of the twins: 8 inputs, 5 hidden units with tanh, and 6 classes, in float64."""

import torch
from torch import Tensor, nn


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the network as raysim trains it."""
    return nn.Sequential(nn.Linear(shape[0], 5), nn.Tanh(), nn.Linear(5, classes)).double()


def hidden(w: Tensor, x: Tensor) -> Tensor:
    """Return the hidden units [n, 5] of the network with the parameters w [P], on x [n, 8]."""
    return torch.tanh(x @ w[:40].view(5, 8).T + w[40:45])


def logits(w: Tensor, x: Tensor) -> Tensor:
    """Return the logits [n, 6] of the network with the parameters w [P]."""
    return hidden(w, x) @ w[45:75].view(6, 5).T + w[75:]
