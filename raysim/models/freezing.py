"""Frozen parts of a model: parameters that are in no vector, and BatchNorm layers that keep their statistics."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from raysim.config.error_text import either, show
from raysim.models.adapters import find_adapters
from raysim.system.errors import ConfigError


class FrozenBatchNorm1d(nn.BatchNorm1d):
    """BatchNorm that is always in evaluation mode."""

    def train(self, mode: bool = True) -> "FrozenBatchNorm1d":
        """Stay in evaluation mode."""
        return super().train(False)


class FrozenBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm that is always in evaluation mode."""

    def train(self, mode: bool = True) -> "FrozenBatchNorm2d":
        """Stay in evaluation mode."""
        return super().train(False)


class FrozenBatchNorm3d(nn.BatchNorm3d):
    """BatchNorm that is always in evaluation mode."""

    def train(self, mode: bool = True) -> "FrozenBatchNorm3d":
        """Stay in evaluation mode."""
        return super().train(False)


class FrozenBatchNormAct2d(FrozenBatchNorm2d):
    """BatchNorm that is always in evaluation mode, then what timm's BatchNormAct2d does: dropout and activation."""

    drop: nn.Module
    act: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations [n, c, h, w] of x [n, c, h, w]."""
        activations: Tensor = self.act(self.drop(super().forward(x)))
        return activations


FROZEN_NORMS = (FrozenBatchNorm1d, FrozenBatchNorm2d, FrozenBatchNorm3d)
_FROZEN: Mapping[type[nn.Module], type[nn.Module]] = {kind.__mro__[1]: kind for kind in FROZEN_NORMS}


def match_names(names: Sequence[str], patterns: Sequence[str], key: str) -> list[str]:
    """Return the parameters' names that match one of the patterns, as in a shell: * is any text.

    Raises:
        ConfigError: a pattern of this key matches no name.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, n=3, cutoff=0.3) or [*names[:3]]
            words = f"found {show(pattern)}, which matches no parameter, allowed: a pattern for names such as"
            raise ConfigError(f"{key}: {words} {either(near)}")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def freeze(module: nn.Module, patterns: Sequence[str]) -> None:
    """Freeze the parameters with names that match one of the patterns. Raises ConfigError: a pattern matches none."""
    parameters = dict(module.named_parameters())
    for name in match_names([*parameters], patterns, "model.freeze"):
        parameters[name].requires_grad_(False)


def freeze_statistics(module: nn.Module) -> None:
    """Keep the statistics of each BatchNorm layer with frozen weights: it stays in evaluation mode from now on.

    Otherwise clients would change them in training, and send them.
    """
    for owner in [*module.modules()]:
        for name, layer in [*owner.named_children()]:
            weights = [*layer.parameters()]
            if _has_frozen(layer) and weights and not any(weight.requires_grad for weight in weights):
                if layer.running_mean is None:
                    continue  # it always uses the batch's statistics
                setattr(owner, name, _frozen(layer))


def _has_frozen(layer: nn.Module) -> bool:
    return type(layer) in _FROZEN or _is_timms(layer)


def _is_timms(layer: nn.Module) -> bool:
    """Return whether a layer is timm's BatchNormAct2d. timm is not imported for it, as it takes seconds."""
    return type(layer).__name__ == "BatchNormAct2d" and type(layer).__module__.startswith("timm.layers.")


def _frozen(layer: nn.Module) -> nn.Module:
    """Return a frozen layer with the tensors of a BatchNorm layer."""
    assert isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    kind = FrozenBatchNormAct2d if _is_timms(layer) else _FROZEN[type(layer)]
    frozen = kind(layer.num_features, eps=layer.eps, momentum=layer.momentum)
    if isinstance(frozen, FrozenBatchNormAct2d):
        frozen.drop, frozen.act = layer.get_submodule("drop"), layer.get_submodule("act")
    frozen.weight, frozen.bias = layer.weight, layer.bias
    for name, buffer in layer.named_buffers():
        setattr(frozen, name, buffer)
    return frozen.eval()


def constant_buffers(module: nn.Module) -> set[str]:
    """Return the names of the buffers that do not change and are not sent.

    These are the statistics of frozen BatchNorm layers, and buffers that the state_dict leaves out (persistent=False),
    such as the frequencies of rotary positions. Every host builds the same ones.
    """
    layers = ((name, layer) for name, layer in module.named_modules() if isinstance(layer, FROZEN_NORMS))
    frozen = {f"{name}.{buffer}" for name, layer in layers for buffer, _ in layer.named_buffers()}
    persistent = module.state_dict(keep_vars=True).keys()  # torch has no other public list of them
    return frozen | {name for name, _ in module.named_buffers() if name not in persistent}


def share_frozen(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Use the tensors of a file in place of frozen parameters with the same values.

    The file is mapped into memory, so the processes of a node have these pages once. Adapted layers have their weights
    under their names in the model without adapters.
    """
    in_file = {
        f"{name}.base.{leaf}": f"{name}.{leaf}" for name, _ in find_adapters(module) for leaf in ("weight", "bias")
    }
    for name, parameter in module.named_parameters():
        found = state.get(in_file.get(name, name))
        if parameter.requires_grad or found is None or found.dtype != parameter.dtype:
            continue
        if torch.equal(found, parameter):
            parameter.data = found


def frozen_bytes(module: nn.Module) -> tuple[int, int]:
    """Return the bytes of frozen parameters that are mapped from a file (see `share_frozen`), and of the others."""
    frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
    mapped = sum(p.nbytes for p in frozen if not p.untyped_storage().resizable())  # only memory of torch's own can grow
    return mapped, sum(p.nbytes for p in frozen) - mapped
