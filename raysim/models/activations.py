"""What a model's layers put out, read off a forward pass: on it depend memory and how many samples pass at a time."""

import torch
from torch import Tensor, nn

from raysim.models.flat import FlatModel


def measure_activations(model: FlatModel, x: Tensor) -> tuple[int, int]:
    """Return the bytes of all layers' outputs for one sample like the two in x, and of the largest one.

    The model is in evaluation mode afterwards, and otherwise unchanged.
    """
    sizes: list[int] = []

    def note(module: nn.Module, given: object, output: object) -> None:
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
