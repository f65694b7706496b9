"""The model of an evaluation, as an objective calls it: once for each chunk, or several times."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from raysim.federation.federation import Federation
from raysim.models.arrays import Arrays
from raysim.models.inputs import as_input
from raysim.objectives.objective import Inputs


class EvaluatedModel:
    """Returns the outputs of samples, and notes whether they are all finite.

    Args:
        module: the network, in evaluation mode.
        dtype: its dtype.
        federation: the data, which say whether a sample is several arrays.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype, federation: Federation) -> None:
        self._module = module
        self._dtype = dtype
        features = bool(federation.raw_shape)  # in place of the arrays
        self._arrays = federation.vocabulary if isinstance(federation.vocabulary, Arrays) and not features else None
        self._finite: list[Tensor] = []

    def begin(self, x: Tensor) -> Inputs:
        """Return the rows of a chunk as the model receives them: by name if a sample is several arrays."""
        self._finite = [torch.ones((), dtype=torch.bool, device=x.device)]
        return x if self._arrays is None else self._arrays.split(x)

    def __call__(self, x: Inputs) -> Tensor:
        """Return the outputs [n, ...] of one forward pass."""
        if isinstance(x, Mapping):  # the module's own hook takes rows apart
            assert self._arrays is not None
            x = torch.cat([x[part.name].flatten(1) for part in self._arrays.parts], 1)
        outputs: Tensor = self._module(as_input(x, self._dtype))
        self._finite.append(outputs.isfinite().all())
        return outputs

    def all_finite(self) -> Tensor:
        """Return whether all outputs of the chunk are finite, bool []."""
        return torch.stack(self._finite).all()
