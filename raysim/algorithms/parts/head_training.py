"""Training of the head alone, at the server, on features that it draws."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.nn import functional

from raysim.api import FlatModel

Batch = tuple[Tensor, Tensor, float]
"""Features [n, d] of the head, their labels [n], and the learning rate of the step."""


def trained_head(
    model: FlatModel,
    parameters: Tensor,
    batches: Iterable[Batch],
    loss: Callable[[Tensor, Tensor], Tensor],
    momentum: float,
) -> Tensor:
    """Return parameters [P] with a head that SGD has trained on these batches. The sums are in float64.

    Args:
        model: the model that the parameters are of.
        parameters: the parameters [P] from which training starts. They stay as they are.
        batches: the steps.
        loss: the loss of the logits [n, classes] and the labels [n] of a batch.
        momentum: of SGD: a step is the rate times v, with v = momentum v + gradient.
    """
    changed = parameters.clone()
    places = [model.named(changed)[name] for name in model.head]
    head = [place.double().requires_grad_() for place in (place.clone() for place in places)]
    speeds = [torch.zeros_like(tensor) for tensor in head]
    for x, y, rate in batches:
        gradients = torch.autograd.grad(loss(functional.linear(x.double(), *head), y), head)
        with torch.no_grad():
            for tensor, speed, gradient in zip(head, speeds, gradients, strict=True):
                tensor -= rate * speed.mul_(momentum).add_(gradient)
    for place, tensor in zip(places, head, strict=True):
        place.copy_(tensor.detach())
    return changed
