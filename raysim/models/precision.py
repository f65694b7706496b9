"""Passes in bfloat16 around trained parameters, gradients and buffers in float32: `model.precision`.

Autocast rounds what linear layers, convolutions and matrix products multiply, in all passes of the model: training,
evaluation and those of methods. Frozen matrices are stored as they are rounded, which halves their memory.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from raysim.models.stages import StagedNetwork
from raysim.system.errors import ConfigError


class InBfloat16:
    """A pass of a module under autocast to bfloat16, on the device that has its parameters.

    It is a class, as a copy of a module (copy.deepcopy) must call the copy's own pass. Autocast keeps no rounded
    weights from one layer to the next: one that was rounded without a gradient would have none later in the pass.
    """

    def __init__(self, module: nn.Module, run: Callable[..., Any]) -> None:
        self._module, self._run = module, run

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Return what the pass returns."""
        device = next(self._module.parameters()).device
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            return self._run(*inputs, **options)


def compute_in_bfloat16(module: nn.Module, model: str) -> None:
    """Make the module's passes compute in bfloat16 and return float32, and store frozen matrices in bfloat16.

    Other frozen parameters stay in float32, such as biases, norms and position codes. Autocast does not round them all,
    and not all layers take them in another type than their inputs. It does not round tables of embeddings either. They
    are the largest matrices of many language models, and are stored rounded.

    Args:
        module: the module, which is changed.
        model: the model's name.

    Raises:
        ConfigError: the trained parameters are not float32.
    """
    dtypes = {parameter.dtype for parameter in module.parameters() if parameter.requires_grad}
    for dtype in dtypes - {torch.float32}:
        words = f"found bfloat16, allowed with {model}, which trains parameters of {dtype}: float32"
        raise ConfigError(f"model.precision: {words}")
    for name, parameter in module.named_parameters():
        is_matrix = parameter.dim() > 1 and name.rpartition(".")[2] == "weight"
        if is_matrix and not parameter.requires_grad and parameter.dtype == torch.float32:
            parameter.data = parameter.data.bfloat16()
    for name in ("forward", "before") if isinstance(module, StagedNetwork) else ("forward",):
        setattr(module, name, InBfloat16(module, getattr(module, name)))
    module.register_forward_hook(_in_float32)


def _in_float32(module: nn.Module, inputs: object, outputs: object) -> Tensor | None:
    return outputs.float() if isinstance(outputs, Tensor) else None
