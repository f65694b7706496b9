"""Load a model's initial weights from a file that torch.save wrote, or from a file in the format safetensors."""

import os
from collections.abc import Sequence
from pathlib import Path
from zipfile import is_zipfile  # torch's format since 2020; older files cannot be mapped

import torch
from torch import Tensor, nn

from raysim.config.error_text import shorten
from raysim.models.layers import find_head
from raysim.models.safetensors_file import read_safetensors
from raysim.models.weight_layouts import fit_weights
from raysim.system.errors import ConfigError, describe_error

SHOWN = 4  # tensors that an error names


def read_weights(module: nn.Module, path: Path, prefix: str = "") -> dict[str, Tensor]:
    """Return a file of weights by the model's names, which begin with `prefix`. The file is mapped into memory.

    Raises:
        ConfigError: the file cannot be read, or no name of the model begins with the prefix.
    """
    if not any(name.startswith(prefix) for name in module.state_dict()):
        first = next(name for name, _ in module.named_parameters())
        raise ConfigError(f"model.prefix: found {prefix!r}, allowed: the start of names such as {first}")
    owner = module.get_submodule(prefix.removesuffix(".")) if prefix.endswith(".") else module
    state = fit_weights(owner, _read(path))
    return {f"{prefix}{name}": tensor for name, tensor in state.items()} if prefix else state


def load_weights(
    module: nn.Module, state: dict[str, Tensor], path: Path, prefix: str = "", x: Tensor | None = None
) -> None:
    """Load the weights of `read_weights` into the parameters and buffers.

    With two samples x, a head that does not fit keeps its initial weights. So do trained parameters that are not in the
    file, if others are frozen: these are adapters, prompts or a head for frozen weights.

    Raises:
        ConfigError: the file does not fit the model.
    """
    initial = {name: tensor for name, tensor in module.state_dict().items() if name.startswith(prefix)}
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    optional = trained if any(not parameter.requires_grad for parameter in module.parameters()) else set[str]()
    try:
        unfit = {name for name in initial if name not in state or state[name].shape != initial[name].shape}
        head = {*find_head(module, x)} if unfit and x is not None else set[str]()
        module.train()  # as it was built
        for name in head if head & unfit else ():
            state.pop(name, None)  # in place, as the dict has an attribute with the layers' versions
        other = [name for name in initial if name in state and state[name].shape != initial[name].shape]
        result = None if other else module.load_state_dict(state, strict=False)
    except Exception as error:
        raise ConfigError(f"model.weights: {path} does not fit the model: {describe_error(error)}") from error
    absent = [*initial] if result is None else [name for name in result.missing_keys if name in initial]
    absent = [name for name in absent if name not in {*state, *head, *optional}]
    unknown = [name for name in state if name not in initial] if result is None else result.unexpected_keys
    shapes = [f"{name} {[*state[name].shape]} for {[*initial[name].shape]}" for name in other]
    kinds = (("of another shape: ", shapes), ("not in the file: ", absent), ("not in the model: ", unknown))
    if problems := [kind + _list(names) for kind, names in kinds if names]:
        raise ConfigError(f"model.weights: {path} does not fit the model: {'; '.join(problems)}")


def _read(path: Path) -> dict[str, Tensor]:
    """Return the state_dict in a file. Pickled objects other than tensors are refused."""
    if not os.path.isfile(path):  # Path.is_file raises an error for an invalid path
        raise ConfigError(f"model.weights: there is no file {shorten(str(path))}")
    allowed = "allowed: a state_dict that torch.save wrote"
    if path.suffix == ".safetensors":
        try:
            return read_safetensors(path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"model.weights: {path} cannot be read: {describe_error(error)}") from error
    try:
        state = torch.load(path, map_location="cpu", mmap=is_zipfile(path), weights_only=True)
    except PermissionError as error:
        raise ConfigError(f"model.weights: {path} cannot be read: {error.strerror}") from error
    except Exception as error:  # torch's message explains how to execute the file's code: not repeated
        problem = "holds more than tensors, or is no file of torch's"
        raise ConfigError(f"model.weights: {path} {problem}; {allowed}") from error
    if not isinstance(state, dict) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        kind = f"a dict with the keys {_list([*map(str, state)])}" if isinstance(state, dict) else type(state).__name__
        raise ConfigError(f"model.weights: {path} holds {kind}; {allowed}, names and tensors and no dict around it")
    return state


def _list(names: Sequence[str]) -> str:
    """Return the first names as text."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
