"""Load a model's initial weights from a file that torch.save wrote, or from a file in the format safetensors."""

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import is_zipfile  # torch's format since 2020; older files cannot be mapped

import torch
from torch import Tensor, nn

from raysim.config.error_text import shorten
from raysim.models.layers import find_head
from raysim.models.safetensors_file import read_safetensors
from raysim.models.weight_layouts import describe_fit, fit_weights
from raysim.models.weight_wrappers import KEYS, find_state, strip_prefixes
from raysim.system.errors import ConfigError, describe_error

SHOWN = 4  # tensors that an error names
NUMBERS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # types of weights; others are codes of them
BEGINNINGS = {
    b"": "is empty",
    b"version https://git-lfs": "is a pointer of Git LFS and not the weights; run git lfs pull",
    b"<": "is a web page and not the weights; download it again",
}
"""The first bytes of files that are no weights, and what they are."""


@dataclass
class WeightsFile:
    """A file of weights.

    Attributes:
        path: the file.
        tensors: its tensors by the model's names. Those of frozen weights are mapped from the file.
        notes: what was left out, changed or not in the file, a phrase each.
    """

    path: Path
    tensors: dict[str, Tensor]
    notes: list[str]


def read_weights(module: nn.Module, path: Path, prefix: str = "") -> WeightsFile:
    """Return a file of weights by the model's names, which begin with `prefix`. The file is mapped into memory.

    Raises:
        ConfigError: the file cannot be read, or no name of the model begins with the prefix.
    """
    if not any(name.startswith(prefix) for name in module.state_dict()):
        first = next(name for name, _ in module.named_parameters())
        raise ConfigError(f"model.prefix: found {prefix!r}, allowed: the start of names such as {first}")
    owner = module.get_submodule(prefix.removesuffix(".")) if prefix.endswith(".") else module
    key, state = _read(path)
    state, stripped = strip_prefixes(state, owner.state_dict())
    fitted = fit_weights(owner, state)
    notes = [f"weights: those of the key {key!r} of the file"] if key else []
    notes += [f"weights: left out {one!r} in the file's names" for one in stripped]
    notes += [f"weights: {line}" for line in describe_fit(owner, state, fitted)]
    return WeightsFile(
        path, {f"{prefix}{name}": tensor for name, tensor in fitted.items()} if prefix else fitted, notes
    )


def load_weights(module: nn.Module, weights: WeightsFile, prefix: str = "", x: Tensor | None = None) -> None:
    """Load the weights of `read_weights` into the parameters and buffers, and note which keep their initial values.

    With two samples x, a head that does not fit keeps its initial weights. So do trained parameters that are not in the
    file, if others are frozen: these are adapters, prompts or a head for frozen weights.

    Raises:
        ConfigError: the file does not fit the model.
    """
    path, state, every = weights.path, weights.tensors, module.state_dict()
    initial = {name: tensor for name, tensor in every.items() if name.startswith(prefix)}
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    optional = trained if any(not parameter.requires_grad for parameter in module.parameters()) else set[str]()
    try:
        head = _leave_out_head(module, initial, state, x)
        shared = {name: (state[name], own) for name, own in initial.items() if name in state}
        misfits = [*_describe_misfits(shared)]
        result = None if misfits else module.load_state_dict(state, strict=False)
    except Exception as error:
        raise ConfigError(f"model.weights: {path} does not fit the model: {describe_error(error)}") from error
    kept = [name for name in (initial if result is None else result.missing_keys) if name in {*initial} - {*state}]
    unknown = [name for name in state if name not in initial] if result is None else result.unexpected_keys
    if absent := [name for name in kept if name not in {*head, *optional}]:
        misfits.append(f"not in the file: {_list(absent)}")
    if unknown:
        misfits.append(f"not in the model: {_list(unknown)}")
    if misfits:
        raise ConfigError(f"model.weights: {path} does not fit the model: {'; '.join(misfits)}")
    if kept := [name for name in every if name in kept or name not in initial]:
        weights.notes.append(f"weights: initial values where the file has none that fit: {_list(kept)}")
    types = {(_type(found), _type(own)) for found, own in shared.values()}
    weights.notes += [f"weights: {file} in the file, {own} in the model" for file, own in sorted(types) if file != own]


def _leave_out_head(
    module: nn.Module, initial: Collection[str], state: dict[str, Tensor], x: Tensor | None
) -> set[str]:
    """Return the head's names, and leave it out of the file's tensors if it does not fit."""
    own = module.state_dict()
    unfit = {name for name in initial if name not in state or state[name].shape != own[name].shape}
    head = {*find_head(module, x)} if unfit and x is not None else set[str]()
    module.train()  # as it was built
    for name in head if head & unfit else ():
        state.pop(name, None)  # in place, as the dict has an attribute with the layers' versions
    return head


def _describe_misfits(shared: Mapping[str, tuple[Tensor, Tensor]]) -> Iterator[str]:
    """Yield what is wrong with tensors: by name the file's and the model's."""
    shapes = [
        f"{name} {[*found.shape]} for {[*own.shape]}"
        for name, (found, own) in shared.items()
        if found.shape != own.shape
    ]
    types = [
        f"{name} {_type(found)} for {_type(own)}"
        for name, (found, own) in shared.items()
        if not _is_of_type(found, own)
    ]
    if shapes:
        yield f"of another shape: {_list(shapes)}"
    if types:
        yield f"of another type: {_list(types)}"


def _is_of_type(found: Tensor, own: Tensor) -> bool:
    """Return whether a tensor may be loaded: a floating one as any other; numbers of another kind are codes of them."""
    if own.is_floating_point():
        return found.dtype in NUMBERS
    return found.dtype == own.dtype


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _read(path: Path) -> tuple[str, dict[str, Tensor]]:
    """Return the state_dict in a file, and the key that it has there. Pickled objects but tensors are refused."""
    if not os.path.isfile(path):  # Path.is_file raises an error for an invalid path
        raise ConfigError(f"model.weights: there is no file {shorten(str(path))}")
    allowed = "allowed: a state_dict that torch.save wrote"
    try:
        if problem := _look(path):
            raise ConfigError(f"model.weights: {path} {problem}; {allowed}")
        if path.suffix == ".safetensors":
            return "", read_safetensors(path)
        with warnings.catch_warnings(action="ignore"):  # torch's, about sparse tensors, which are refused below
            content = torch.load(path, map_location="cpu", mmap=is_zipfile(path), weights_only=True)
    except ConfigError:
        raise
    except PermissionError as error:
        raise ConfigError(f"model.weights: {path} cannot be read: {error.strerror}") from error
    except Exception as error:
        if path.suffix == ".safetensors":
            raise ConfigError(f"model.weights: {path} cannot be read: {describe_error(error)}") from error
        # torch's message explains how to execute the file's code: not repeated
        problem = "holds more than tensors, or is no file of torch's"
        raise ConfigError(f"model.weights: {path} {problem}; {allowed}") from error
    if (found := find_state(content)) is None:
        kind = type(content).__name__
        if isinstance(content, dict):
            kind = f"a dict with the keys {_list([*map(str, content)])}"
        around = f"names and tensors, or a dict with these under one of the keys {', '.join(KEYS)}"
        raise ConfigError(f"model.weights: {path} holds {kind}; {allowed}, {around}")
    key, state = found
    if unlike := [name for name, tensor in state.items() if tensor.layout != torch.strided or tensor.is_quantized]:
        raise ConfigError(f"model.weights: {path} holds sparse or quantized tensors: {_list(unlike)}; {allowed}, dense")
    return key, state


def _look(path: Path) -> str:
    """Return what a file is that has no weights, by its first bytes, or ""."""
    with path.open("rb") as file:
        first = file.read(64)
    if first.startswith(b"PK") and not is_zipfile(path):
        return "is cut off: it begins as a file of torch's, but has no end; copy it again"
    return next(
        (what for start, what in BEGINNINGS.items() if first.lstrip().startswith(start) and (start or not first)), ""
    )


def _list(names: Sequence[str]) -> str:
    """Return the first names as text."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
