"""Messages between the runner and its hosts: small ones as bytes, large ones through the object store.

Ray sends bytes as they are. For every other argument it runs its own serializers, which takes longer.
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
    """A packed value with more than LARGE bytes of arrays."""

    packed: bytes  # the value, with as many arrays as LARGE allows
    arrays: list[npt.NDArray[np.uint8]]  # the other arrays ([n]), not copied


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
    """Return the packed value. Its tensors are writable."""
    if isinstance(message, Large):
        return pickle.loads(message.packed, buffers=message.arrays)
    return pickle.loads(message) if isinstance(message, bytes) else message


def seal(asked: Any, message: Any, broadcasts: Sequence[Broadcast]) -> list[Any]:
    """Return a call's arguments: bytes, then references, which Ray resolves.

    The caller has applied `store` to the message and to the broadcasts' values.
    """
    stored = [message, *(broadcast.value for broadcast in broadcasts)]
    inside = [part if isinstance(part, bytes) else None for part in stored]
    names = [(broadcast.name, broadcast.version) for broadcast in broadcasts]
    return [pickle.dumps((asked, names, inside)), *(part for part in stored if not isinstance(part, bytes))]


def unseal(sealed: bytes, fetched: Sequence[Any]) -> tuple[Any, Any, list[Broadcast]]:
    """Invert `seal`: return what the call asks for, the message and the broadcasts."""
    asked, names, inside = pickle.loads(sealed)
    left = iter(fetched)
    message, *values = (unpack(next(left) if part is None else part) for part in inside)
    return (
        asked,
        message,
        [Broadcast(name, version, value) for (name, version), value in zip(names, values, strict=True)],
    )


def _reduce(tensor: Tensor) -> tuple[Any, ...]:
    """Return how to pickle a tensor: by its dtype, shape and bytes, because NumPy lacks some dtypes."""
    data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return _make_tensor, (tensor.dtype, tuple(tensor.shape), pickle.PickleBuffer(data.data))


def _make_tensor(dtype: torch.dtype, shape: tuple[int, ...], data: Any) -> Tensor:
    """Return a tensor with a copy of the data. Ray's arrays are read only, and keep their object in the store."""
    tensor = torch.empty(shape, dtype=dtype)
    if len(data):
        tensor.view(-1).view(torch.uint8).numpy()[:] = np.frombuffer(data, np.uint8)
    return tensor
