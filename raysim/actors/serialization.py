"""What the runner and its hosts send each other: small messages as bytes, large ones through the object store.

Ray moves bytes as they are. For any other value it runs its own serializers for each argument.
"""

import io
import pickle
from collections.abc import Sequence
from copyreg import dispatch_table as usual
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
import torch
from torch import Tensor

from raysim.api.messages import Broadcast

LARGE = 96 * 2**10  # bytes; Ray sends arguments and replies of up to 100 KiB without its object store


@dataclass(frozen=True, eq=False)
class Large:
    """A packed value with more than LARGE bytes of arrays.

    Attributes:
        packed: the value, with as many arrays as LARGE allows.
        arrays: the other arrays (uint8 [n]), not copied.
    """

    packed: bytes
    arrays: list[npt.NDArray[np.uint8]]


def pack(value: Any) -> Any:
    """Return a value as bytes or as Large. A value that only Ray can pickle is returned unchanged."""
    packed, arrays, inside = io.BytesIO(), [], 0

    def keep_inside(array: pickle.PickleBuffer) -> bool:
        nonlocal inside
        size = array.raw().nbytes
        if inside + size > LARGE:
            arrays.append(np.frombuffer(array.raw(), np.uint8))
            return False
        inside += size
        return True

    pickler = pickle.Pickler(packed, pickle.HIGHEST_PROTOCOL, buffer_callback=keep_inside)
    pickler.dispatch_table = {**usual, Tensor: _reduce}
    try:
        pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return value
    return Large(packed.getvalue(), arrays) if arrays else packed.getvalue()


def store(value: Any) -> Any:
    """Return a small value as bytes. Put a large one into the object store and return a reference to it."""
    packed = pack(value)
    return packed if isinstance(packed, bytes) else ray.put(packed)


def unpack(message: Any) -> Any:
    """Return the value that was packed; its tensors are writable."""
    if isinstance(message, Large):
        return pickle.loads(message.packed, buffers=message.arrays)
    return pickle.loads(message) if isinstance(message, bytes) else message


def seal(asked: Any, message: Any, broadcasts: Sequence[Broadcast]) -> list[Any]:
    """Return a call's arguments: bytes, then references, which Ray fetches. `store` made message and broadcasts."""
    stored = [message, *(broadcast.value for broadcast in broadcasts)]
    inside = [part if isinstance(part, bytes) else None for part in stored]
    names = [(broadcast.name, broadcast.version) for broadcast in broadcasts]
    return [pickle.dumps((asked, names, inside)), *(part for part in stored if not isinstance(part, bytes))]


def unseal(sealed: bytes, fetched: Sequence[Any]) -> tuple[Any, Any, list[Broadcast]]:
    """Return what was asked, the message and the broadcasts, given a call's arguments."""
    asked, names, inside = pickle.loads(sealed)
    left = iter(fetched)
    message, *values = (unpack(next(left) if part is None else part) for part in inside)
    return (
        asked,
        message,
        [Broadcast(name, version, value) for (name, version), value in zip(names, values, strict=True)],
    )


def _taken_apart(tensor: Tensor) -> tuple[torch.dtype, tuple[int, ...], npt.NDArray[np.uint8]]:
    """Return a tensor's dtype, shape and bytes; NumPy lacks some dtypes."""
    return tensor.dtype, tuple(tensor.shape), tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()


def _put_together(dtype: torch.dtype, shape: tuple[int, ...], data: Any) -> Tensor:
    """Return a tensor with memory of its own: Ray's arrays are read only, and keep their object in the store."""
    tensor = torch.empty(shape, dtype=dtype)
    if len(data):
        tensor.view(-1).view(torch.uint8).numpy()[:] = np.frombuffer(data, np.uint8)
    return tensor


def _reduce(tensor: Tensor) -> tuple[Any, ...]:
    dtype, shape, data = _taken_apart(tensor)
    return _put_together, (dtype, shape, pickle.PickleBuffer(data.data))
