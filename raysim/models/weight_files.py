"""Load a model's initial weights from a file that torch.save wrote."""

import os
from collections.abc import Sequence
from pathlib import Path
from zipfile import is_zipfile  # torch's format since 2020; older files cannot be mapped

import torch
from torch import Tensor, nn

from raysim.config.error_text import shorten
from raysim.models.freezing import share_frozen
from raysim.models.layers import find_head
from raysim.models.weight_layouts import fit_weights
from raysim.system.errors import ConfigError, describe_error

SHOWN = 4  # tensors that an error names


def load_weights(module: nn.Module, path: Path, prefix: str = "", x: Tensor | None = None) -> None:
    """Load a file of weights, with `prefix` before its names, into the parameters and buffers.

    With two samples x, a head that does not fit keeps its initial weights. So do trained parameters that are not in the
    file, if others are frozen: these are adapters, prompts or a head for frozen weights. The file is mapped into
    memory, and frozen parameters stay in it. So the processes of a node have them once.

    Raises:
        ConfigError: the file cannot be read, or does not fit the model.
    """
    state = _read(path)
    if prefix:
        state = {f"{prefix}{name}": tensor for name, tensor in state.items()}
    initial = {name: tensor for name, tensor in module.state_dict().items() if name.startswith(prefix)}
    if not initial:
        raise ConfigError(f"model.prefix: found {prefix!r}, allowed: the start of names such as {_first(module)}")
    state = fit_weights(module, state)
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
    share_frozen(module, state)


def _first(module: nn.Module) -> str:
    """Return the name of a module's first parameter."""
    return next(name for name, _ in module.named_parameters())


def _read(path: Path) -> dict[str, Tensor]:
    """Return the state_dict in a file. Pickled objects other than tensors are refused."""
    if not os.path.isfile(path):  # Path.is_file raises an error for an invalid path
        raise ConfigError(f"model.weights: there is no file {shorten(str(path))}")
    allowed = "allowed: a state_dict that torch.save wrote"
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
