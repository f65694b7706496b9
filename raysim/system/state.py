"""State in a checkpoint: tensors, numbers, strings, None, and lists, tuples and dicts of them.

torch.save writes the records. They are read with weights_only=True, which builds only these types and executes no code.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from raysim.system.errors import RunError

ALLOWED = "a tensor, number, string, None, or a list, tuple or dict of them"


class Stateful:
    """An object whose attributes are its state. A checkpoint stores all of them except those in `transient`.

    A new attribute is therefore stored by default.
    """

    transient: ClassVar[frozenset[str]] = frozenset()
    """The attributes that a checkpoint omits: the constructor makes them again, or they last for one round at most."""

    def state(self) -> dict[str, Any]:
        """Return all attributes that are not transient. Attributes that are Stateful are replaced by their states."""
        return {name: _state_of(value) for name, value in vars(self).items() if name not in self.transient}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of an object that was constructed in the same way."""
        for name, stored in state.items():
            value = vars(self).get(name)
            if isinstance(value, Stateful):
                value.restore(stored)
            elif _holds_kept(value):
                for key, part in vars(self)[name].items():
                    part.restore(stored[key])
            else:
                vars(self)[name] = stored


def _state_of(value: Any) -> Any:
    if isinstance(value, Stateful):
        return value.state()
    return {key: part.state() for key, part in value.items()} if _holds_kept(value) else value


def _holds_kept(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(part, Stateful) for part in value.values())


def find_foreign(value: object) -> str | None:
    """Return the name of the first type in a value that a checkpoint cannot keep, or None."""
    if isinstance(value, dict) and type(value) is dict:
        return next(filter(None, (find_foreign(part) for pair in value.items() for part in pair)), None)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return next(filter(None, map(find_foreign, value)), None)
    allowed = value is None or type(value) in (bool, int, float, str) or isinstance(value, Tensor)
    return None if allowed else type(value).__name__


def encode(state: Mapping[str, Any]) -> bytes:
    """Return a state as bytes."""
    buffer = io.BytesIO()
    torch.save(map_tensors(_compact, state), buffer)
    return buffer.getvalue()


def decode(record: bytes, device: torch.device | None = None) -> Any:
    """Return the encoded state, with floating-point tensors on a device and all others on the CPU.

    The others are positions and counts, which a client also has on the CPU.

    Raises:
        RunError: the record is invalid. No code in it was executed.
    """
    try:
        state = torch.load(io.BytesIO(record), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        kind = type(error).__name__  # torch's message explains how to execute the record's code: not repeated
        raise RunError(f"a checkpoint's record cannot be read ({kind}); delete the newest checkpoint") from None
    if device is None or device.type == "cpu":
        return state
    return map_tensors(lambda tensor: tensor.to(device) if tensor.is_floating_point() else tensor, state)


def _compact(tensor: Tensor) -> Tensor:
    """Return a detached tensor that does not share a larger tensor's storage."""
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor.detach() if whole else tensor.detach().clone(memory_format=torch.contiguous_format)


def map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return a value with `change` applied to its tensors, at any depth in lists, tuples, mappings and dataclasses."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(change, part) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{key: map_tensors(change, part) for key, part in vars(value).items()})
    return type(value)(map_tensors(change, part) for part in value) if isinstance(value, list | tuple) else value
