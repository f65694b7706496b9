"""A network's linear and convolutional layers: their inputs as matrices, and the head."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.models.task_heads import TaskHeads


def name_layers(module: nn.Module) -> dict[nn.Module, str]:
    """Return the trained linear and 2-d convolutional layers, in the module's order, with their weights' names.

    Layers that share a weight have the same name.
    """
    names = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    return {layer: names[id(layer.weight)] for layer in layers if id(layer.weight) in names}


def layers_named(module: nn.Module, names: Collection[str]) -> dict[nn.Module, str]:
    """Return the part of `name_layers` with these names."""
    return {layer: name for layer, name in name_layers(module).items() if name in names}


def input_rows(layer: nn.Module, x: Tensor) -> Tensor:
    """Return the rows [rows, d] that a layer multiplies with its weight. d is the number of weights per output.

    The rows of a linear layer are the last dimension of x [..., d]. The rows of a convolution are the patches of
    x [n, channels, H, W], separately for each group.
    """
    if isinstance(layer, nn.Conv2d):
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        x = functional.pad(x, _margins(layer), mode=mode)
        patches = functional.unfold(x, layer.kernel_size, layer.dilation, stride=layer.stride)  # [n, groups d, places]
        x = patches.unflatten(1, (layer.groups, -1)).movedim(2, -1)
    return x.reshape(-1, x.shape[-1])


def _margins(layer: nn.Conv2d) -> list[int]:
    """Return what a convolution puts around its images: left, right, top, bottom."""
    if layer.padding == "same":  # an odd total has its larger half at the end
        totals = [step * (size - 1) for step, size in zip(layer.dilation, layer.kernel_size, strict=True)]
        sides = [(total // 2, total - total // 2) for total in totals]
    else:
        sides = [(0, 0)] * 2 if isinstance(layer.padding, str) else [(side, side) for side in layer.padding]
    return [*sides[1], *sides[0]]


@contextmanager
def recorded_inputs(layers: Mapping[nn.Module, str]) -> Iterator[dict[str, list[Tensor]]]:
    """Record the inputs of these layers in this context, as `input_rows` in the weights' dtype, by name."""
    recorded: dict[str, list[Tensor]] = {name: [] for name in layers.values()}

    def recorder(name: str, dtype: torch.dtype) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        return lambda layer, inputs: recorded[name].append(input_rows(layer, inputs[0]).to(dtype))

    dtypes = [layer.get_parameter("weight").dtype for layer in layers]
    recorders = [recorder(name, dtype) for name, dtype in zip(layers.values(), dtypes, strict=True)]
    hooks = [layer.register_forward_pre_hook(record) for layer, record in zip(layers, recorders, strict=True)]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def find_head(module: nn.Module, x: Tensor) -> tuple[str, ...]:
    """Return the names of the weight and the bias, if any, of the head: the linear layer that makes the logits.

    A pass over two samples x finds it: the model returns the output of its last linear layer. Otherwise the result is
    empty. If each task has a head, all of them are returned. A layer that shares its weight with a table of embeddings
    (tied weights) is no head: methods would replace or mask the table. The module is in evaluation mode afterwards.
    """
    layers = {layer: name for layer, name in name_layers(module).items() if isinstance(layer, nn.Linear)}
    outputs: list[tuple[nn.Linear, Tensor, int]] = []
    returned: list[Tensor] = []

    def note(layer: nn.Linear, inputs: object, output: Tensor) -> None:
        # the version is the only sign that a later layer overwrites an output in place, as ReLU(inplace=True) does:
        # neither the address nor, where all are positive, a value changes. torch has no public name for it
        outputs.append((layer, output, output._version))

    hooks = [layer.register_forward_hook(note) for layer in layers]
    # before the model's own hooks, of which one may change the outputs' type (model.precision)
    hooks.append(module.register_forward_hook(lambda _, inputs, logits: returned.append(logits), prepend=True))
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            module.eval()
            if layers:
                module(x)
    finally:
        for hook in hooks:
            hook.remove()
    if not outputs:
        return ()
    (layer, output, version), (logits,) = outputs[-1], returned
    if output.data_ptr() != logits.data_ptr() or output.shape != logits.shape or output._version != version:
        return ()
    if any(isinstance(table, nn.Embedding) and table.weight is layer.weight for table in module.modules()):
        return ()
    heads = next((h.heads for h in module.modules() if isinstance(h, TaskHeads) and layer in h.heads), [layer])
    head_ids = {id(p) for head in heads for p in (head.weight, head.bias)}
    return tuple(name for name, p in module.named_parameters() if id(p) in head_ids)
