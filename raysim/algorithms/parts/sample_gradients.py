"""Gradients per sample, vectorized over a batch: their norms, and the sum of their squares."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from raysim.models.flat import FlatModel
from raysim.models.inputs import two_samples_of
from raysim.system.errors import find_custom_frame
from raysim.system.seeding import torch_restored

CHUNK = {"cpu": 2**22, "cuda": 2**26}
"""Gradient elements held at once: fits a core's cache and a shared GPU. Constant, because rounding may depend on it."""


def squared_norms(model: FlatModel, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Return ||grad loss(model(x_i), y_i)||^2 [n] over all trainable parameters, for each sample of x [n, ...], y [n].

    The model is in evaluation mode: no dropout, and BatchNorm's statistics are used and not changed. The mode is
    restored. `loss` takes logits [1, classes] and y [1].
    """
    module, training = model.module, model.module.training
    module.eval()
    gradient_of_one = _gradient_of_one(model, loss)

    def of_one(x: Tensor, y: Tensor) -> Tensor:
        parts = gradient_of_one(x, y)
        return torch.stack([torch.linalg.vector_norm(part) for part in parts.values()]).square().sum()

    norms: Tensor = vmap(of_one, chunk_size=_together(model), randomness="different")(x, y)
    module.train(training)
    return norms.detach()


def sum_of_squares(model: FlatModel, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Return sum_i (grad loss(model(x_i), y_i))^2 [P], the squares by entry; x, y and `loss` as in squared_norms.

    The module keeps its mode.
    """
    each, total = vmap(_gradient_of_one(model, loss), randomness="different"), torch.zeros_like(model.parameters)
    for some in zip(x.split(_together(model)), y.split(_together(model)), strict=True):
        parts = each(*some).values()
        total += torch.cat([part.detach().square().sum(0).reshape(-1) for part in parts])
    return total


def refused_by(model: FlatModel) -> str | None:
    """Return why torch cannot vectorize the gradients of two samples, or None. The model is unchanged."""
    x, mode = two_samples_of(model.module, model.shape).to(model.device), model.module.training
    try:
        with torch_restored():
            squared_norms(model, lambda logits, y: logits.logsumexp(-1).sum(), x, torch.zeros(len(x)))
    except Exception as error:  # torch has no single kind for what a transform cannot run
        function, place = find_custom_frame(error)
        sentence = str(error).partition("\n")[0].partition(". ")[0]  # the rest of vmap's text is for torch's developers
        return f"{type(error).__name__}: {sentence}" + (f"; {function}, {place}" if place else "")
    finally:
        model.module.train(mode)
    return None


def _gradient_of_one(model: FlatModel, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., dict[str, Tensor]]:
    """Return a function that returns the gradient of one sample's loss, by the parameters' names."""
    parameters = model.named(model.parameters)

    def of_one(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        def loss_at(parameters: Mapping[str, Tensor]) -> Tensor:
            return loss(functional_call(model.module, dict(parameters), (x[None],)), y[None])

        return dict(grad(loss_at)(parameters))

    return of_one


def _together(model: FlatModel) -> int:
    return max(1, CHUNK.get(model.device.type, CHUNK["cpu"]) // len(model.parameters))
