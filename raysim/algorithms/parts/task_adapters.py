"""LoRA's additions by task: every task trains a new A and B, and evaluations use what the finished tasks added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from raysim.api import FlatModel, Server, Step, Weights
from raysim.models.adapters import draw_a, find_adapters, is_transposed, products

A, B = ".lora_a.weight", ".lora_b.weight"
"""The ends of the names of A and B."""


def lacks_adapters(model: FlatModel) -> str | None:
    """Return why a model is unfit: it has no adapters, or one without a trained A and B. None if it is fit."""
    adapters = [name for name, _ in find_adapters(model.module)]
    if adapters and all(f"{name}{end}" in model.layout for name in adapters for end in (A, B)):
        return None
    found = "adapters with a frozen part" if adapters else "no adapters"
    return f"found {found} in the model, allowed: trained LoRA layers; set model.adapters={{rank: 4, where: [LAYER]}}"


def lacks_matrices(model: FlatModel) -> str | None:
    """Return why not all additions are matrices [outputs, inputs]. None if they are.

    A convolution with groups has several A and B in one tensor. GPT-2's layers have transposed weights.
    """
    for name, adapter in find_adapters(model.module):
        if getattr(adapter.base, "groups", 1) > 1 or is_transposed(adapter.base):
            kind = "with a transposed weight" if is_transposed(adapter.base) else "a convolution with groups"
            return f"found an adapter of {name}, {kind}, allowed: others in model.adapters.where"
    return None


def entries(model: FlatModel, end: str) -> Tensor:
    """Return which entries (bool [P], on the model's device) belong to parameters with this end of the name."""
    parts = [torch.full((shape.numel(),), name.endswith(end)) for name, shape in model.layout.items()]
    return torch.cat(parts).to(model.device)


def hold(step: Step, held: Tensor) -> None:
    """Undo what an optimizer's decay or momentum changed at these entries (bool [P]) in this step."""
    parameters = step.client.model.parameters
    parameters.copy_(torch.where(held, step.client.received, parameters))


def additions(model: FlatModel, parameters: Tensor) -> dict[str, Tensor]:
    """Return s B A for parameters [P], by the name of the frozen weight that it is added to, in its shape."""
    added = products(model.module, model.named(parameters))
    return {f"{name.removesuffix('weight')}base.weight": product for name, product in added.items()}


def sum_of_tasks(model: FlatModel, tasks: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the sum of the additions of several vectors [P]; see `additions`."""
    total: dict[str, Tensor] = {}
    for parameters in tasks:
        for name, added in additions(model, parameters).items():
            total[name] = total[name] + added if name in total else added
    return total


def with_additions(model: FlatModel, weights: Weights, added: Mapping[str, Tensor], own: float = 1.0) -> Weights:
    """Return these weights with other frozen ones: W0 + `added`, to which the model adds `own` times its s B A."""
    parameters = weights.parameters
    if own != 1.0:
        parameters = torch.where(entries(model, B), own * parameters, parameters)
    frozen = {name: model.frozen[name] + change for name, change in added.items()}
    return Weights(parameters, weights.buffers, weights.integers, frozen=frozen)


def weights_of(server: Server) -> Weights:
    """Return the server's model."""
    return Weights(server.parameters, server.buffers, server.integers)


def begin_adapters(server: Server, name: str) -> None:
    """Replace the server's A by a new draw, and B by zeros. The draws are from the method's stream."""
    parameters = server.parameters.clone()
    with server.rng_scope(name):
        for part, value in server.network.named(parameters).items():
            if part.endswith(A):
                value.copy_(draw_a(value))
            elif part.endswith(B):
                value.zero_()
    server.replace_model(Weights(parameters, server.buffers, server.integers))
