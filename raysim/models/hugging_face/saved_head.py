"""The head of a classifier in the folder that `raysim.save_pretrained` wrote, in its own file next to the body's."""

from pathlib import Path

import torch
from torch import nn

from raysim.config.error_text import shorten
from raysim.models.hugging_face.folder import KEY
from raysim.models.safetensors_file import read_safetensors
from raysim.system.errors import ConfigError, describe_error


def load_head(network: nn.Module, path: Path) -> tuple[str, ...]:
    """Load the tensors outside of the body, such as head.weight, from the folder's file of them.

    Args:
        network: the network, with the part `body`.
        path: the file.

    Returns:
        what was done, a phrase each.

    Raises:
        ConfigError: the file cannot be read, or has other tensors or shapes than the network outside of its body.
    """
    own = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith("body.")}
    try:
        found = read_safetensors(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{KEY}: {shorten(str(path))} cannot be read: {describe_error(error)}") from error
    if not own:
        return (f"weights: not used: {path.name}, as the model has no head",)
    if misfits := [
        f"found {_describe(found, name)}, allowed: {_describe(own, name)}"
        for name in sorted({*own, *found})
        if _describe(own, name) != _describe(found, name)
    ]:
        problem = f"{shorten(str(path))} does not fit the model's head: {misfits[0]}"
        raise ConfigError(f"{KEY}: {problem}; remove the file, or use a copy of the folder without it, for a new head")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(found[name])
    types = {(str(found[name].dtype), str(tensor.dtype)) for name, tensor in own.items()}
    casts = [f"weights: {there} in {path.name}, {here} in the model" for there, here in sorted(types) if there != here]
    return (f"weights: the head of {path.name}", *(line.replace("torch.", "") for line in casts))


def _describe(tensors: dict[str, torch.Tensor], name: str) -> str:
    return f"{name} {[*tensors[name].shape]}" if name in tensors else f"no {name}"
