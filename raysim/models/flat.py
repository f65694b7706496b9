"""A model as flat vectors: its parameters, gradient and buffers, of which the module's tensors are views."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from raysim.models.layers import name_layers, noted_inputs
from raysim.system.errors import ConfigError

DTYPES = {torch.float32, torch.float64}
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True)
class Weights:
    """A model's weights: trainable parameters [P], float buffers [B], integer buffers [I].

    `local_bytes` are the bytes of what clients have of their own, and are not sent.
    """

    parameters: Tensor
    buffers: Tensor
    integers: Tensor
    local_bytes: int = field(default=0, kw_only=True)

    @property
    def nbytes(self) -> int:
        """The bytes that a deployment would send."""
        return self.parameters.nbytes + self.buffers.nbytes + self.integers.nbytes - self.local_bytes


class FlatModel:
    """A module whose tensors are views of flat vectors, so that one operation on a vector changes the whole model.

    `parameters` and `gradient` [P] and `buffers` [B] (BatchNorm's statistics) are in the model's dtype, `integers` [I]
    (BatchNorm's counts of batches) are int64. Frozen parameters and boolean buffers (constants) are in no vector, as
    every host builds the same ones; they are not sent. `forward` is what a call of the model does: the module's forward
    pass, or the same pass otherwise launched. `head` are the names of the weight and bias of the linear layer
    that makes the logits, where a method wants to know; empty if there is none.

    Raises:
        ConfigError: the module has nothing to train, parameters without a shape, of several dtypes or of low precision,
            or a buffer that cannot be sent.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.forward: Callable[[Tensor], Tensor] = module
        self.head: tuple[str, ...] = ()
        if lazy := [name for name, p in module.named_parameters() if is_lazy(p)]:
            raise ConfigError(
                f"model: {lazy[0]} has no shape yet, allowed: layers that are told all sizes, no lazy ones"
            )
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        dtypes = {p.dtype for p in trained.values()}
        if len(dtypes) != 1 or not dtypes <= DTYPES:
            found = ", ".join(sorted(map(str, dtypes))) or "no trainable parameter"
            allowed = "trainable parameters of one dtype, torch.float32 or torch.float64; torch.autocast in the forward"
            raise ConfigError(f"model: found {found}, allowed: {allowed} pass computes in lower precision")
        (self.dtype,) = dtypes
        device = next(iter(trained.values())).device
        floats = {name: b for name, b in module.named_buffers() if b.dtype == self.dtype}
        others = {name: b for name, b in module.named_buffers() if b.dtype == torch.int64}
        for name, buffer in module.named_buffers():
            if buffer.dtype not in (self.dtype, torch.int64, torch.bool):
                allowed = f"{self.dtype}, torch.int64, or torch.bool for constants"
                raise ConfigError(f"model: the buffer {name} is {buffer.dtype}, allowed: {allowed}")
        self._trained = list(trained.values())
        self.layout = {name: p.shape for name, p in trained.items()}
        self.parameters = _concatenate(trained.values(), self.dtype, device)
        self.gradient = torch.zeros_like(self.parameters)
        self.buffers = _concatenate(floats.values(), self.dtype, device)
        self.integers = _concatenate(others.values(), torch.int64, device)
        gradients = self.named(self.gradient)
        for name, view in self.named(self.parameters).items():
            trained[name].data = view
            trained[name].grad = gradients[name]
        self._buffer_layout = {name: b.shape for name, b in floats.items()}
        self._statistics = [*_views(self._buffer_layout, self.buffers).values()]
        self._integer_layout = {name: b.shape for name, b in others.items()}
        counts = _views(self._integer_layout, self.integers)
        for name, view in (*zip(floats, self._statistics, strict=True), *counts.items()):
            owner, _, leaf = name.rpartition(".")
            setattr(module.get_submodule(owner), leaf, view)
        self.normalises = any(isinstance(m, BATCH_NORMS) for m in module.modules())

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits [n, classes] of x [n, ...], which autograd can follow."""
        return self.forward(x)

    @property
    def device(self) -> torch.device:
        """The device of the vectors."""
        return self.parameters.device

    @property
    def vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The parameters, float buffers and integer buffers."""
        return self.parameters, self.buffers, self.integers

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return views of a vector [P] by the parameters' names and in their shapes, for methods that work by layer."""
        return _views(self.layout, vector)

    def gradient_of(self, loss: Tensor) -> Tensor:
        """Return the gradient [P] of a loss, without changing the step's gradient (`gradient`)."""
        parts = torch.autograd.grad(loss, self._trained, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    @property
    def widths(self) -> dict[str, int]:
        """By the weights' names, the number of weights d that one output of a linear or convolutional layer has."""
        return {name: self.layout[name][1:].numel() for name in name_layers(self.module).values()}

    @property
    def layers(self) -> list[str]:
        """The names of the modules that have trained parameters of their own, in the model's order."""
        return list(dict.fromkeys(name.rpartition(".")[0] for name in self.layout))

    def begin_of(self, layer: str) -> tuple[int, int, int]:
        """Return where a layer, and all that the model has after it, begins in parameters, buffers and integers."""
        places = {name: place for place, (name, _) in enumerate(self.module.named_modules())}

        def before(layout: Mapping[str, torch.Size]) -> int:
            owned = ((places[name.rpartition(".")[0]], shape.numel()) for name, shape in layout.items())
            return sum(size for place, size in owned if place < places[layer])

        return before(self.layout), before(self._buffer_layout), before(self._integer_layout)

    def logits(self, x: Tensor, parameters: Tensor, buffers: Tensor) -> Tensor:
        """Return the logits [n, classes] of x [n, ...] under other parameters [P] and float buffers [B]: a teacher's.

        In evaluation mode and without a gradient. The model at hand, which may be between its forward and its backward
        pass, keeps every bit, and so does each layer's mode.
        """
        with self._under(parameters, buffers):
            found: Tensor = self.module(x)
        return found

    def inputs(self, x: Tensor, parameters: Tensor, buffers: Tensor, layers: Collection[str]) -> dict[str, Tensor]:
        """Return what enters these layers (names as in `widths`) where x [n, ...] passes under these weights.

        Rows [rows, d] that the layer's weight [outputs, d] is multiplied with, so of a convolution the patches; none
        for a layer that is not passed. Nothing changes, as in `logits`.
        """
        chosen = {layer: name for layer, name in name_layers(self.module).items() if name in layers}
        with self._under(parameters, buffers), noted_inputs(chosen) as found:
            self.module(x)
        widths = self.widths
        return {name: torch.cat([x.new_zeros(0, widths[name]), *found[name]]) for name in layers}

    def with_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [n, classes] of a pass as it is, and what entered the head in it, [n, d]."""
        with noted_inputs(self._head_layer) as found:
            logits: Tensor = self.module(x)
        return logits, found[self.head[0]][-1]

    @cached_property
    def _head_layer(self) -> dict[nn.Module, str]:
        """The head's weight by its layer; once, as every step may ask for it."""
        return {layer: name for layer, name in name_layers(self.module).items() if name == self.head[0]}

    @contextmanager
    def _under(self, parameters: Tensor, buffers: Tensor) -> Iterator[None]:
        """Point the module's tensors at other vectors meanwhile, in evaluation mode and without a gradient."""
        training = [module for module in self.module.modules() if module.training]
        tensors = [*self._trained, *self._statistics]
        others = [*self.named(parameters).values(), *_views(self._buffer_layout, buffers).values()]
        own = [tensor.data for tensor in tensors]
        self.module.eval()
        try:
            for tensor, other in zip(tensors, others, strict=True):
                tensor.data = other  # not written to, which autograd would notice; functional_call loses tied layers
            with torch.no_grad():
                yield
        finally:
            for tensor, mine in zip(tensors, own, strict=True):
                tensor.data = mine
            for module in training:
                module.training = True

    def load(self, weights: Weights) -> None:
        """Copy the weights of a global model into this one."""
        self.parameters.copy_(weights.parameters)
        self.buffers.copy_(weights.buffers)
        self.integers.copy_(weights.integers)

    def copy(self) -> Weights:
        """Return a copy of the weights, where they are."""
        return Weights(*(vector.clone() for vector in self.vectors))

    def weights(self) -> Weights:
        """Return a copy of the weights on the CPU."""
        return Weights(*(v.detach().to("cpu", copy=True) for v in self.vectors))

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the module's state_dict on the CPU, every tensor contiguous and with its own storage."""
        return {
            k: v.detach().cpu().clone(memory_format=torch.contiguous_format)
            for k, v in self.module.state_dict().items()
        }


def _concatenate(tensors: Iterable[Tensor], dtype: torch.dtype, device: torch.device) -> Tensor:
    flat = [t.detach().reshape(-1).to(dtype) for t in tensors]
    return torch.cat(flat) if flat else torch.zeros(0, dtype=dtype, device=device)


def _views(layout: Mapping[str, torch.Size], vector: Tensor) -> dict[str, Tensor]:
    sizes = [prod(shape) for shape in layout.values()]
    return {name: part.view(shape) for (name, shape), part in zip(layout.items(), vector.split(sizes), strict=True)}
