"""State in a checkpoint: tensors, numbers, strings, None, and lists, tuples and dicts of them.

torch.save writes the records. They are read with weights_only=True, which builds only these types and executes no code.
"""

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from raysim.system.errors import RunError

ALLOWED = (
    "a tensor, number, string, None, or a list, tuple or dict of them; or an object that __init__ makes and that has "
    "the methods state and restore"
)
INSTEAD: Mapping[type, str] = {
    torch.nn.Module: "its state_dict()",
    torch.optim.Optimizer: "its state_dict()",
    np.ndarray: "a tensor, torch.from_numpy(array)",
    np.generic: "a number, as from .item()",
    set: "a sorted list",
    frozenset: "a sorted list",
}
"""By type that a checkpoint cannot keep: what to keep instead."""


class Stateful:
    """An object with attributes that are its state. A checkpoint stores all of them except those in `transient`.

    A new attribute is therefore stored by default. An attribute may also be an object of another class that has the
    methods `state` and `restore`. The constructor must make such an object: it is restored in place.
    """

    transient: ClassVar[frozenset[str]] = frozenset()
    """The attributes that a checkpoint omits: the constructor makes them again, or they last for one round at most."""

    def state(self) -> dict[str, Any]:
        """Return all attributes that are not transient. Objects with a separate state are replaced by it.

        >>> client.state()["round"]
        1
        """
        return {name: state_of(value) for name, value in vars(self).items() if name not in self.transient}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of an object that was constructed in the same way.

        Raises:
            RunError: the state is not one of such an object.

        >>> client.restore(client.state())
        """
        if not isinstance(state, Mapping):
            raise RunError(f"{type(self).__name__}: its state is of type {type(state).__name__}")
        for name, stored in state.items():
            value: Any = vars(self).get(name)
            if keeps_itself(value):
                value.restore(stored)
            elif _holds_kept(value):
                if not isinstance(stored, Mapping) or stored.keys() != value.keys():
                    raise RunError(f"{type(self).__name__}: its {name} is not the state of {', '.join(value)}")
                for key, part in value.items():
                    part.restore(stored[key])
            else:
                vars(self)[name] = stored


def keeps_itself(value: Any) -> bool:
    """Return whether an object has a state of its own, and can restore it."""
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in ("state", "restore"))


def state_of(value: Any) -> Any:
    """Return an attribute as a checkpoint stores it."""
    if keeps_itself(value):
        return value.state()
    return {key: part.state() for key, part in value.items()} if _holds_kept(value) else value


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors in a value, in a fixed order; see map_tensors."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, value)
    return found


def _holds_kept(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(part, Stateful) for part in value.values())


def describe_foreign(value: object) -> str | None:
    """Return what a checkpoint cannot keep in a value, and what to keep in its place. None if it can be kept."""
    foreign = _find_foreign(value)
    if foreign is None:
        return None
    if isinstance(foreign, Tensor):
        what = "has autograd's graph" if foreign.grad_fn is not None else "requires a gradient"
        return f"a tensor that {what}, which a checkpoint cannot keep, allowed: detach() of it"
    instead = next((words for kind, words in INSTEAD.items() if isinstance(foreign, kind)), ALLOWED)
    return f"a {type(foreign).__name__}, which a checkpoint cannot keep, allowed: {instead}"


def _find_foreign(value: object) -> object | None:
    """Return the first object in a value that a checkpoint cannot keep, or None."""
    if isinstance(value, dict) and type(value) is dict:
        return next(filter(_is_found, (_find_foreign(part) for pair in value.items() for part in pair)), None)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return next(filter(_is_found, map(_find_foreign, value)), None)
    if isinstance(value, Tensor):
        return value if value.requires_grad else None
    return None if value is None or type(value) in (bool, int, float, str) else value


def _is_found(value: object | None) -> bool:
    return value is not None


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
    return map_leaves(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, value)


def map_leaves(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a value with `change` applied to all that is no list, tuple, mapping or dataclass, at any depth."""
    if isinstance(value, Mapping):
        return {key: map_leaves(change, part) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{part.name: map_leaves(change, getattr(value, part.name)) for part in fields(value)})
    if not isinstance(value, list | tuple):
        return change(value)
    parts = [map_leaves(change, part) for part in value]
    return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)  # a named tuple takes its parts
