"""The networks of the twins, in float64: one with one hidden layer, one with BatchNorm, and a transformer."""

import torch
from torch import Tensor, nn

from raysim.models.prompt_keys import CodaKeys, DualKeys, L2PKeys, PrefixKeys
from raysim.models.vit import vit


def network(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the small network as raysim trains it: 8 inputs, 5 hidden units with tanh, and 6 classes."""
    return nn.Sequential(nn.Linear(shape[0], 5), nn.Tanh(), nn.Linear(5, classes)).double()


def hidden(w: Tensor, x: Tensor) -> Tensor:
    """Return the hidden units [n, 5] of the network with the parameters w [P], on x [n, 8]."""
    return torch.tanh(x @ w[:40].view(5, 8).T + w[40:45])


def logits(w: Tensor, x: Tensor) -> Tensor:
    """Return the logits [n, 6] of the network with the parameters w [P]."""
    return hidden(w, x) @ w[45:75].view(6, 5).T + w[75:]


PROMPTS: dict[str, L2PKeys | DualKeys | CodaKeys | PrefixKeys] = {
    "l2p": L2PKeys(kind="l2p", pool=5, length=2, top=2),
    "dual": DualKeys(kind="dual", general_blocks=(0,), general_length=2, blocks=(1,), length=3, pool=3),
    "coda": CodaKeys(kind="coda", blocks=(0, 1), pool=6, per_task=2, length=2),
    "prefix": PrefixKeys(kind="prefix", blocks=(0, 1), length=3, initial="unit"),
    "cprompt": CodaKeys(
        kind="coda", blocks=(0, 1), pool=6, per_task=2, length=2, attention="softmax", initial="orthogonal"
    ),
}


def transformer(shape: tuple[int, ...], classes: int, *, prompts: str) -> nn.Module:
    """Return a vision transformer with prompts: 2 blocks of width 8, with 2 heads. Its frozen weights differ widely."""
    found = vit(
        shape, classes, width=8, depth=2, heads=2, mlp_ratio=1, patch=2, input_size=None, prompts=PROMPTS[prompts]
    ).double()
    with torch.no_grad():
        for parameter in found.parameters():
            if not parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return found


def normalized(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network of images with BatchNorm: 64 inputs, 5 hidden units with tanh, and 6 classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, classes)).double()
