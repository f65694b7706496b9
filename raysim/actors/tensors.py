"""How tensors travel between actors: as NumPy arrays, which Ray moves without pickling their contents."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import ray
import torch
from torch import Tensor


def register() -> None:
    """Teach this process's Ray; to be called in every process that sends or receives."""
    ray.util.register_serializer(Tensor, serializer=_array, deserializer=_tensor)


def _array(tensor: Tensor) -> npt.NDArray[np.generic]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _tensor(array: npt.NDArray[np.generic]) -> Tensor:
    # A copy: what Ray hands out is read only and pins its object for as long as anyone looks at it.
    return torch.from_numpy(array.copy())
