"""Measure the sizes of a model's activations, for the estimate of memory and the size of evaluation chunks."""

import torch
from torch import Tensor, nn

from raysim.models.flat import FlatModel


def measure_activations(model: FlatModel, x: Tensor) -> tuple[int, int]:
    """Return the bytes per sample of all layers' outputs, and of the largest one. x has two samples.

    The model is in evaluation mode afterwards and otherwise unchanged.
    """
    sizes: list[int] = []

    def note(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            sizes.append(output.nbytes // 2)

    hooks = [module.register_forward_hook(note) for module in model.module.modules() if not list(module.children())]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model.module.eval()(x)
    finally:
        for hook in hooks:
            hook.remove()
    return sum(sizes), max(sizes, default=0)
