"""Wrappers around a state_dict in a file: a dict around it, and prefixes that wrapping modules give to its names.

| wrapper | who writes it |
|---|---|
| a dict with the key `state_dict`, `model` or `model_state_dict` | training scripts and Lightning, beside an epoch |
| names that begin with `module.` | torch's DataParallel and DistributedDataParallel |
| names with `_orig_mod.` | torch.compile, of the whole model or of layers |
| names that begin with `model.` | a Lightning module with the attribute `model` |
"""

from collections.abc import Collection, Mapping
from typing import TypeGuard

from torch import Tensor

KEYS = ("state_dict", "model", "model_state_dict")
PREFIXES = ("module.", "model.")
COMPILED = "_orig_mod."


def find_state(content: object) -> tuple[str, dict[str, Tensor]] | None:
    """Return the key of the one state_dict in a file's content, "" if it is the content, or None if there is not one.

    A dict with two keys that may be the model's, such as `model` and `state_dict`, is ambiguous: there is not one.
    """
    if _is_state(content):
        return "", content
    if not isinstance(content, Mapping):
        return None
    states = {key: state for key in KEYS if _is_state(state := content.get(key))}
    return next(iter(states.items())) if len(states) == 1 else None


def strip_prefixes(state: dict[str, Tensor], names: Collection[str]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors without the prefixes of wrappers, and these prefixes.

    A prefix goes if all names of the file have it and no name of the model begins with it.

    Args:
        state: the tensors by the file's names.
        names: the model's names.
    """
    stripped: list[str] = []
    if any(COMPILED in name for name in state) and not any(COMPILED in name for name in names):
        plain = {name.replace(COMPILED, ""): tensor for name, tensor in state.items()}
        if len(plain) == len(state):
            state, stripped = plain, [COMPILED]
    while prefix := next((one for one in PREFIXES if _is_around(one, state, names)), None):
        state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
        stripped.append(prefix)
    return state, stripped


def _is_state(content: object) -> TypeGuard[dict[str, Tensor]]:
    return (
        isinstance(content, dict)
        and bool(content)
        and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items())
    )


def _is_around(prefix: str, state: Collection[str], names: Collection[str]) -> bool:
    inner = [name for name in state if len(name) > len(prefix) and name.startswith(prefix)]
    return len(inner) == len(state) and not any(name.startswith(prefix) for name in names)
