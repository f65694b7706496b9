"""The norm of each sample's gradient, vectorised over the samples of a batch."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from raysim.models.flat import FlatModel

CHUNK = {"cpu": 2**22, "cuda": 2**26}
"""Gradient elements held at once: fits a core's cache and a shared GPU. Constant, as rounding may depend on it."""


def squared_norms(model: FlatModel, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Return ||grad loss(model(x_i), y_i)||^2 [n] over all trainable parameters, for each sample of x [n, ...], y [n].

    In evaluation mode: no dropout, BatchNorm's statistics used and not changed; the module's mode is restored. `loss`
    takes logits [1, classes] and y [1].
    """
    module, training = model.module, model.module.training
    module.eval()
    parameters = model.named(model.parameters)

    def of_one(x: Tensor, y: Tensor) -> Tensor:
        def loss_at(parameters: Mapping[str, Tensor]) -> Tensor:
            return loss(functional_call(module, dict(parameters), (x[None],)), y[None])

        parts = grad(loss_at)(parameters)
        return torch.stack([torch.linalg.vector_norm(part) for part in parts.values()]).square().sum()

    together = max(1, CHUNK.get(model.device.type, CHUNK["cpu"]) // len(model.parameters))
    norms: Tensor = vmap(of_one, chunk_size=together, randomness="different")(x, y)
    module.train(training)
    return norms.detach()
