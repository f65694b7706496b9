"""What a checkpoint can hold: tensors, numbers, strings, None, and lists, tuples and dicts of them; nothing is pickled.

Records are written by torch.save and read with weights_only=True, which builds these types and executes no code.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from raysim.api.method import ClientHalf, Half, ServerHalf
from raysim.system.errors import RunError

ALLOWED = "a tensor, number, string, None, or a list, tuple or dict of them"
OWN = ("name", "knobs")  # attributes of a half that its config makes again


def half_state(half: Half) -> dict[str, Any]:
    """Return a half's attributes: what lasts of it.

    Raises:
        RunError: one of them is nothing that a checkpoint holds.
    """
    state = {key: value for key, value in vars(half).items() if key not in OWN}
    for key, value in state.items():
        found = foreign(value)
        if found is not None:
            side = "server" if isinstance(half, ServerHalf) else "client"
            where = f"{half.name}: its {side} half's attribute {key}"
            raise RunError(f"{where} holds a {found}, which a checkpoint cannot keep, allowed: {ALLOWED}")
    return state


def restore_half(half: ClientHalf | ServerHalf, state: Mapping[str, Any]) -> None:
    """Make a half what it was."""
    own = {key: vars(half)[key] for key in OWN}
    vars(half).clear()
    vars(half).update(own, **state)


def foreign(value: object) -> str | None:
    """Return the name of the first type in a value that a checkpoint cannot keep, or None."""
    if isinstance(value, dict) and type(value) is dict:
        return next(filter(None, (foreign(part) for pair in value.items() for part in pair)), None)
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return next(filter(None, map(foreign, value)), None)
    known = value is None or type(value) in (bool, int, float, str) or isinstance(value, Tensor)
    return None if known else type(value).__name__


def encoded(state: Mapping[str, Any]) -> bytes:
    """Return a state as bytes."""
    buffer = io.BytesIO()
    torch.save(_compact(state), buffer)
    return buffer.getvalue()


def decoded(record: bytes, device: torch.device | None = None) -> Any:
    """Return the state that was encoded; its floating-point tensors on a device, all others on the CPU.

    So all others are what they are in a client: positions and counts, which live on the CPU.

    Raises:
        RunError: the record is none; no code in it was executed.
    """
    try:
        state = torch.load(io.BytesIO(record), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        found = str(error).strip().partition("\n")[0]
        raise RunError(
            f"a checkpoint's record cannot be read ({found}); delete the newest checkpoint's folder"
        ) from None
    return state if device is None or device.type == "cpu" else _placed(state, device)


def _compact(value: Any) -> Any:
    """Return a value with its tensors detached, and without what lies around them in a larger tensor's storage."""
    if isinstance(value, Tensor):
        whole = value.untyped_storage().nbytes() == value.nbytes
        return value.detach() if whole else value.detach().clone(memory_format=torch.contiguous_format)
    if isinstance(value, dict):
        return {key: _compact(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_compact, value))
    return value


def _placed(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _placed(part, device) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_placed(part, device) for part in value)
    return value
