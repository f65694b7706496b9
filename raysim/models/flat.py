"""A model as flat vectors of parameters, gradient and buffers. The module's tensors are views of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from raysim.models.batch_statistics import BATCH_NORMS
from raysim.models.freezing import FROZEN_NORMS, constant_buffers
from raysim.models.layers import layers_named, name_layers, recorded_inputs
from raysim.system.errors import ConfigError

DTYPES = {torch.float32, torch.float64}


@dataclass(frozen=True)
class Weights:
    """A model's weights: trainable parameters [P], float buffers [B], integer buffers [I].

    >>> weights = Weights(torch.zeros(59), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    """

    parameters: Tensor
    buffers: Tensor
    integers: Tensor
    local_bytes: int = field(default=0, kw_only=True)
    """The bytes that stay at the clients and are not sent."""
    frozen: Mapping[str, Tensor] = field(default_factory=dict, kw_only=True)
    """Values of frozen parameters by name, in place of the model's, for `ServerHalf.evaluated`."""

    @property
    def vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The parameters, float buffers and integer buffers.

        >>> [len(vector) for vector in client.model.copy().vectors]
        [59, 0, 0]
        """
        return self.parameters, self.buffers, self.integers

    @property
    def nbytes(self) -> int:
        """The bytes that a deployment would send.

        >>> client.model.copy().nbytes
        236
        """
        return self.parameters.nbytes + self.buffers.nbytes + self.integers.nbytes - self.local_bytes


class FlatModel:
    """A module with tensors that are views of flat vectors, so that one operation on a vector changes the whole model.

    Constants are in no vector and are not sent, as every host builds the same. They are frozen parameters, statistics
    of frozen BatchNorm, boolean buffers, and buffers with persistent=False.

    Attributes:
        module: the torch module.
        parameters: the trainable parameters [P] in the model's dtype; `gradient` [P] is their gradient.
        buffers: the float buffers [B] (BatchNorm's statistics) in the model's dtype.
        integers: the integer buffers [I] (BatchNorm's batch counts), int64.
        forward: the forward pass of a call: the module, or an equal pass such as a CUDA graph.
        head: the names of the weight and bias of the linear layer that makes the logits; empty if there is none.
        layout: the shapes of the parameters by name.
        shape: the shape of one input, once `check_model` has tried the model; empty before.
        notes: what `check_model` did with the file of weights, a phrase each.
        normalises: whether the module has BatchNorm.

    Raises:
        ConfigError: the module has no trainable parameters, parameters without a shape, of several dtypes or of low
            precision, or a buffer that cannot be sent.

    >>> FlatModel(nn.Linear(2, 6)).parameters.shape
    torch.Size([18])
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.forward: Callable[[Tensor], Tensor] = module
        self.head: tuple[str, ...] = ()
        self.shape: tuple[int, ...] = ()
        self.notes: tuple[str, ...] = ()
        if lazy := [name for name, p in module.named_parameters() if is_lazy(p)]:
            raise ConfigError(
                f"model: {lazy[0]} has no shape yet, allowed: layers that are told all sizes, no lazy ones"
            )
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        dtypes = {p.dtype for p in trained.values()}
        if len(dtypes) != 1 or not dtypes <= DTYPES:
            dtype_names = ", ".join(sorted(map(str, dtypes))) or "no trainable parameter"
            allowed = "trainable parameters of one dtype, torch.float32 or torch.float64; torch.autocast in the forward"
            raise ConfigError(f"model: found {dtype_names}, allowed: {allowed} pass computes in lower precision")
        (self.dtype,) = dtypes
        device = next(iter(trained.values())).device
        constant = constant_buffers(module)
        buffers = {name: buffer for name, buffer in module.named_buffers() if name not in constant}
        floats = {name: b for name, b in buffers.items() if b.dtype == self.dtype}
        others = {name: b for name, b in buffers.items() if b.dtype == torch.int64}
        for name, buffer in buffers.items():
            if buffer.dtype not in (self.dtype, torch.int64, torch.bool):
                allowed = f"{self.dtype}, torch.int64 or torch.bool, or any with persistent=False (constants)"
                raise ConfigError(f"model: the buffer {name} is {buffer.dtype}, allowed: {allowed}")
        self._trained = list(trained.values())
        self._replaced: dict[str, Tensor] = {}  # the frozen parameters in place of which others are used
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
        self.normalises = any(isinstance(m, BATCH_NORMS) and not isinstance(m, FROZEN_NORMS) for m in module.modules())

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits [n, classes] of x [n, ...], with an autograd graph."""
        return self.forward(x)

    @property
    def device(self) -> torch.device:
        """The device of the vectors.

        >>> client.model.device
        device(type='cpu')
        """
        return self.parameters.device

    @property
    def vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The parameters, float buffers and integer buffers.

        >>> [len(vector) for vector in client.model.vectors]
        [59, 0, 0]
        """
        return self.parameters, self.buffers, self.integers

    @property
    def frozen(self) -> dict[str, Tensor]:
        """The model's frozen parameters by name, even while others are used in their place. Read only.

        >>> client.model.frozen
        {}
        """
        frozen = {name: p.data for name, p in self.module.named_parameters() if not p.requires_grad}
        return frozen | self._replaced

    @property
    def layouts(self) -> tuple[Mapping[str, torch.Size], ...]:
        """The shapes by name in the parameters, the float buffers and the integer buffers.

        >>> parameters, buffers, integers = client.model.layouts
        >>> parameters["3.weight"]
        torch.Size([4, 5])
        """
        return self.layout, self._buffer_layout, self._integer_layout

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return views of a vector [P] by parameter name, in the parameters' shapes, for methods that work by layer.

        >>> client.model.named(delta.parameters)["3.weight"].shape
        torch.Size([4, 5])
        """
        return _views(self.layout, vector)

    def gradient_of(self, loss: Tensor) -> Tensor:
        """Return the gradient [P] of a loss, without changing the step's gradient (`gradient`).

        >>> client.model.gradient_of(client.loss(client.model(step.x), step.y)).shape
        torch.Size([59])
        """
        parts = torch.autograd.grad(loss, self._trained, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    def gradient_on(self, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return the gradient [P] of loss(logits, y) on a batch, in training mode. BatchNorm's statistics stay.

        >>> client.model.gradient_on(step.x, step.y, client.loss).shape
        torch.Size([59])
        """
        buffers, integers = self.buffers.clone(), self.integers.clone()
        self.module.train()
        gradient = self.gradient_of(loss(self(x), y))
        self.buffers.copy_(buffers)
        self.integers.copy_(integers)
        return gradient

    @property
    def widths(self) -> dict[str, int]:
        """The number of weights d per output of each linear and convolutional layer, by the weight's name.

        >>> client.model.widths
        {'1.weight': 6, '3.weight': 5}
        """
        return {name: self.layout[name][1:].numel() for name in name_layers(self.module).values()}

    @property
    def layers(self) -> list[str]:
        """The names of the modules that directly hold trained parameters, in the model's order.

        >>> client.model.layers
        ['1', '3']
        """
        return list(dict.fromkeys(name.rpartition(".")[0] for name in self.layout))

    def begin_of(self, layer: str) -> tuple[int, int, int]:
        """Return the offsets in parameters, buffers and integers at which a layer and all later ones begin.

        >>> client.model.begin_of("3")
        (35, 0, 0)
        """
        places = {name: place for place, (name, _) in enumerate(self.module.named_modules())}

        def before(layout: Mapping[str, torch.Size]) -> int:
            sizes = ((places[name.rpartition(".")[0]], shape.numel()) for name, shape in layout.items())
            return sum(size for place, size in sizes if place < places[layer])

        return before(self.layout), before(self._buffer_layout), before(self._integer_layout)

    def logits(self, x: Tensor, parameters: Tensor, buffers: Tensor) -> Tensor:
        """Return the logits [n, classes] of x [n, ...] under other parameters [P] and float buffers [B].

        The pass is in evaluation mode and without a gradient. The model keeps every bit and each layer's mode, even
        between its forward and its backward pass.

        >>> client.model.logits(step.x, server.parameters, server.buffers).shape
        torch.Size([4, 4])
        """
        with self._under(parameters, buffers):
            logits: Tensor = self.module(x)
        return logits

    def call_with(self, x: Tensor, parameters: Tensor, buffers: Tensor, integers: Tensor) -> Tensor:
        """Return the logits [n, classes] of a pass in the current mode under other vectors, for torch's transforms.

        BatchNorm changes its statistics in the given vectors. The model is unchanged.

        >>> client.model.call_with(step.x, *client.model.vectors).shape
        torch.Size([4, 4])
        """
        vectors = zip(self.layouts, (parameters, buffers, integers), strict=True)
        views = [_views(layout, vector) for layout, vector in vectors if layout]
        logits: Tensor = functional_call(self.module, {name: v for view in views for name, v in view.items()}, (x,))
        return logits

    def inputs(self, x: Tensor, parameters: Tensor, buffers: Tensor, layers: Collection[str]) -> dict[str, Tensor]:
        """Return the inputs of these layers (names as in `widths`) for x [n, ...] under these weights.

        The inputs are rows [rows, d], which the weight [outputs, d] multiplies. A convolution's rows are patches. A
        layer that is not used has no rows. The model is unchanged, as in `logits`.

        >>> client.model.inputs(step.x, server.parameters, server.buffers, ["3.weight"])["3.weight"].shape
        torch.Size([4, 5])
        """
        chosen = self._head_layer if layers and tuple(layers) == self.head[:1] else layers_named(self.module, layers)
        with self._under(parameters, buffers), recorded_inputs(chosen) as recorded:
            self.module(x)
        widths = self.widths
        return {name: torch.cat([x.new_zeros(0, widths[name]), *recorded[name]]) for name in layers}

    def with_features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits [n, classes] of a pass in the current mode, and the head's inputs [n, d].

        >>> logits, features = client.model.with_features(step.x)
        >>> features.shape
        torch.Size([4, 5])
        """
        with recorded_inputs(self._head_layer) as recorded:
            logits: Tensor = self.module(x)
        return logits, recorded[self.head[0]][-1]

    @cached_property
    def _head_layer(self) -> dict[nn.Module, str]:
        """The name of the head's weight by its layer; cached, as every step may need it."""
        return layers_named(self.module, [self.head[0]])

    @contextmanager
    def _under(self, parameters: Tensor, buffers: Tensor) -> Iterator[None]:
        """Use other vectors for the module's tensors in this context, in evaluation mode and without a gradient."""
        training = [module for module in self.module.modules() if module.training]
        tensors = [*self._trained, *self._statistics]
        replacements = [*self.named(parameters).values(), *_views(self._buffer_layout, buffers).values()]
        originals = [tensor.data for tensor in tensors]
        self.module.eval()
        try:
            for tensor, replacement in zip(tensors, replacements, strict=True):
                tensor.data = replacement  # not copied: autograd would notice. functional_call loses tied layers
            with torch.no_grad():
                yield
        finally:
            for tensor, original in zip(tensors, originals, strict=True):
                tensor.data = original
            for module in training:
                module.training = True

    def network_at(self, weights: Weights) -> nn.Module:
        """Return a separate copy of the module with these weights, on the model's device and in evaluation mode.

        It shares no tensor with the model, so it may be moved, converted and trained.

        >>> client.model.network_at(client.model.copy())(step.x).shape
        torch.Size([4, 4])
        """
        module = copy.deepcopy(self.module).eval()
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        for name, view in self.named(weights.parameters).items():
            parameters[name].data, parameters[name].grad = view.to(self.device, copy=True), None
        for layout, vector in ((self._buffer_layout, weights.buffers), (self._integer_layout, weights.integers)):
            for name, view in _views(layout, vector).items():
                buffers[name].data = view.to(self.device, copy=True)
        return module

    def load(self, weights: Weights) -> None:
        """Copy the weights of a global model into this one.

        >>> client.model.load(client.from_server("model"))
        """
        self.parameters.copy_(weights.parameters)
        self.buffers.copy_(weights.buffers)
        self.integers.copy_(weights.integers)
        if self._replaced or weights.frozen:
            self._replace_frozen(weights.frozen)

    def _replace_frozen(self, values: Mapping[str, Tensor]) -> None:
        """Use these values of frozen parameters, until other weights are loaded."""
        for name, original in self._replaced.items():
            self.module.get_parameter(name).data = original
        self._replaced = {name: self.module.get_parameter(name).data for name in values}
        for name, value in values.items():
            self.module.get_parameter(name).data = value.to(self._replaced[name])

    def copy(self) -> Weights:
        """Return a copy of the weights on their device.

        >>> client.model.copy().parameters.shape
        torch.Size([59])
        """
        return Weights(*(vector.clone() for vector in self.vectors))

    def weights(self) -> Weights:
        """Return a copy of the weights on the CPU.

        >>> client.model.weights().parameters.device
        device(type='cpu')
        """
        return Weights(*(v.detach().to("cpu", copy=True) for v in self.vectors))

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the module's state_dict on the CPU, every tensor contiguous and with its own storage.

        >>> list(client.model.state_dict())
        ['1.weight', '1.bias', '3.weight', '3.bias']
        """
        return {
            k: v.detach().cpu().clone(memory_format=torch.contiguous_format)
            for k, v in self.module.state_dict().items()
        }


def frozen_sums(model: FlatModel) -> dict[str, int]:
    """Return a checksum of each frozen parameter: the sum of its bits, read as whole numbers."""
    sums = {}
    for name, value in model.frozen.items():
        flat = value.detach().contiguous().view(-1)
        whole = (
            torch.int32
            if flat.element_size() % 4 == 0
            else torch.int16
            if flat.element_size() % 2 == 0
            else torch.uint8
        )
        sums[name] = flat.view(whole).sum(dtype=torch.int64)
    return dict(zip(sums, torch.stack([*sums.values()]).tolist(), strict=True)) if sums else {}


def _concatenate(tensors: Iterable[Tensor], dtype: torch.dtype, device: torch.device) -> Tensor:
    flat = [t.detach().reshape(-1).to(dtype) for t in tensors]
    return torch.cat(flat) if flat else torch.zeros(0, dtype=dtype, device=device)


def _views(layout: Mapping[str, torch.Size], vector: Tensor) -> dict[str, Tensor]:
    sizes = [prod(shape) for shape in layout.values()]
    return {name: part.view(shape) for (name, shape), part in zip(layout.items(), vector.split(sizes), strict=True)}
