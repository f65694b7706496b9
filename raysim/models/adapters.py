"""LoRA: trained low-rank additions to frozen layers. Hu et al., ICLR 2022, arXiv 2106.09685.

An adapted layer has the weight W0 + s B A. W0 [outputs, inputs] is frozen, A [rank, inputs] and B [outputs, rank] are
trained, and s is the scale. A convolution's weight is a matrix with a column for each number of a patch.

Passes and gradients have the bits of the package peft, in which alpha is s times the rank.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from raysim.config.error_text import describe_unknown
from raysim.system.errors import ConfigError

AddedLayer = nn.Linear | nn.Conv2d
WHOLE = (nn.MultiheadAttention, nn.TransformerEncoderLayer)  # use their layers' weights without calling the layers


class LowRankAdapter(nn.Module):
    """A frozen layer `base`, and `lora_b(lora_a(x))`, which is added to its output.

    A's input is the layer's input, so `FlatModel.inputs` has it under the name of A's weight. A is drawn as torch draws
    a layer's weight (Kaiming-uniform with a = sqrt 5), and B is zero: at first the output is the layer's.

    Args:
        base: a linear layer, a 2-d convolution, or a layer that `is_transposed`. With groups, each group of a
            convolution has a separate A and B.
        rank: the rank of B A.
        scale: s.
        dropout: the probability with which a number of A's input is zero in training. The base's input is unchanged.
    """

    lora_a: AddedLayer
    lora_b: AddedLayer

    def __init__(self, base: nn.Module, rank: int, scale: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), scale
        self.dropout = nn.Dropout(dropout) if dropout else None
        weight = base.get_parameter("weight")
        dtype = torch.promote_types(weight.dtype, torch.float32)  # adapters of a trunk in bf16 are trained in float32
        options: dict[str, Any] = {"bias": False, "dtype": dtype, "device": weight.device}
        if not isinstance(base, nn.Conv2d):
            outputs, inputs = reversed(weight.shape) if is_transposed(base) else weight.shape
            self.lora_a = nn.Linear(inputs, rank, **options)
            self.lora_b = nn.Linear(rank, outputs, **options)
        else:
            middle = rank * base.groups
            geometry: dict[str, Any] = {
                name: getattr(base, name)
                for name in ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
            }
            self.lora_a = nn.Conv2d(base.in_channels, middle, **geometry, **options)
            self.lora_b = nn.Conv2d(middle, base.out_channels, 1, groups=base.groups, **options)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for x, with the addition."""
        y: Tensor = self.base(x)
        x = x.to(self.lora_a.weight.dtype)
        added = self.scale * self.lora_b(self.lora_a(x if self.dropout is None else self.dropout(x)))
        output: Tensor = (y + added).to(y.dtype)
        return output

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """Return s B A in the shape of the layer's weight, for weights of `lora_a` and `lora_b`."""
        groups = self.base.groups if isinstance(self.base, nn.Conv2d) else 1
        columns, rows = a.reshape(groups, -1, a[0].numel()), b.reshape(groups, -1, b.shape[1])
        product = rows @ columns
        if is_transposed(self.base):
            product = product.mT
        return self.scale * product.reshape(self.base.get_parameter("weight").shape)


def is_transposed(layer: nn.Module) -> bool:
    """Return whether a layer is transformers' Conv1D, as in GPT-2: a linear layer with a weight [inputs, outputs].

    Its class is known by name, so that raysim works without transformers. `name_layers` leaves it out: methods expect a
    weight [outputs, inputs]. Its A is an ordinary linear layer, which `name_layers` has.
    """
    kind = type(layer)
    return (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D")


def add_adapters(
    module: nn.Module,
    rank: int,
    where: Sequence[str],
    scale: float = 1.0,
    *,
    head: Collection[str] = (),
    train_head: bool = True,
    dropout: float = 0.0,
) -> None:
    """Add LoRA to the linear and 2-d convolutional layers with these names, and freeze all other weights.

    The head is never adapted. It is trained in full, unless `train_head` is false. With rank 0 no layer changes: only
    the head is trained. A layer that shares its weight with a table of embeddings is neither adapted nor trained.

    Args:
        module: the model, which is changed.
        rank: the rank of the additions.
        where: patterns of names. A pattern fits a layer's whole name or its end after a dot, such as `attn.qkv`, and
            may have the wildcards of shells: `blocks.[01].*` or `*`.
        scale: s.
        head: the names of the head's weight and bias, which `find_head` returns.
        train_head: whether the head is trained.
        dropout: of A's inputs; see `LowRankAdapter`.

    Raises:
        ConfigError: a pattern fits no layer, or fits one that cannot be replaced. Or the rank is above the sides of all
            adapted layers.
    """
    left = {id(parameter) for name, parameter in module.named_parameters() if name in head}
    left |= {id(table.weight) for table in module.modules() if isinstance(table, nn.Embedding)}
    layers = {
        name: layer
        for name, layer in module.named_modules(remove_duplicate=False)
        if (isinstance(layer, nn.Linear | nn.Conv2d) or is_transposed(layer)) and id(layer.weight) not in left
    }
    fitting = {name for pattern in where for name in _fitting(pattern, [*layers])}
    chosen = {name: layer for name, layer in layers.items() if name in fitting and rank}
    owners = {name: module.get_submodule(name.rpartition(".")[0]) for name in chosen}
    for name, owner in owners.items():
        if isinstance(owner, WHOLE):
            problem = f"found {name} in torch's {type(owner).__name__}, which does not call it, allowed: other layers"
            raise ConfigError(f"model.adapters.where: {problem}")
    ranks = {_full_rank(layer): name for name, layer in chosen.items()}
    if ranks and rank > (most := max(ranks)):
        problem = f"found {rank:,}, allowed: 0 to {most:,}, the smaller side of {ranks[most]}"
        raise ConfigError(f"model.adapters.rank: {problem}, which no adapted layer exceeds")
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(train_head and name in head)
    adapters = {layer: LowRankAdapter(layer, rank, scale, dropout) for layer in dict.fromkeys(chosen.values())}
    for name, layer in chosen.items():
        setattr(owners[name], name.rpartition(".")[2], adapters[layer])


def _full_rank(layer: nn.Module) -> int:
    """Return the largest rank of a layer's weight: the smaller side of its matrix, or of each group's."""
    groups, weight = layer.groups if isinstance(layer, nn.Conv2d) else 1, layer.get_parameter("weight")
    return min(len(weight) // groups, weight[0].numel())


def _fitting(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the names that a pattern fits."""
    found = [name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")]
    if not found:
        ends = [".".join(name.split(".")[-parts:]) for parts in (1, 2) for name in names]
        raise ConfigError(f"model.adapters.where: {describe_unknown('layer', pattern, dict.fromkeys(ends))}")
    return found


def find_adapters(module: nn.Module) -> Iterator[tuple[str, LowRankAdapter]]:
    """Yield the adapters with the names of their layers, as they are in the model without adapters."""
    for name, adapter in module.named_modules():
        if isinstance(adapter, LowRankAdapter):
            yield name, adapter


def products(module: nn.Module, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return s B A by the name of each adapted layer's weight, in its shape.

    Args:
        module: the model with adapters.
        parameters: its trained parameters by name, as `FlatModel.named` returns them for any vector.
    """
    return {
        f"{name}.weight": adapter.product(parameters[f"{name}.lora_a.weight"], parameters[f"{name}.lora_b.weight"])
        for name, adapter in find_adapters(module)
    }


def merged_weights(module: nn.Module, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return W0 + s B A by the name of each adapted layer's weight. See `products`."""
    merged = products(module, parameters)
    for name, adapter in find_adapters(module):
        weight = adapter.base.get_parameter("weight").detach()
        merged[f"{name}.weight"] = (weight + merged[f"{name}.weight"]).to(weight.dtype)
    return merged


def merged_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the state_dict of the same model without adapters, which has the same outputs up to rounding."""
    state = module.state_dict()
    weights = merged_weights(module, {name: p.detach() for name, p in module.named_parameters()})
    merged = {adapter: weights[f"{name}.weight"] for name, adapter in find_adapters(module)}
    for name, adapter in module.named_modules(remove_duplicate=False):  # a layer may have several names
        if not isinstance(adapter, LowRankAdapter):
            continue
        for part in [part for part in state if part.startswith(f"{name}.")]:
            kind, _, leaf = part.removeprefix(f"{name}.").partition(".")
            tensor = state.pop(part)
            if kind == "base":
                state[f"{name}.{leaf}"] = tensor
        state[f"{name}.weight"] = merged[adapter]
    return state


def merge_adapters(module: nn.Module) -> None:
    """Replace each adapted layer by a plain one with the weight W0 + s B A, in place. W0 keeps its bits elsewhere."""
    merged = merged_weights(module, {name: p.detach() for name, p in module.named_parameters()})
    of_layers = {adapter: merged[f"{name}.weight"] for name, adapter in find_adapters(module)}
    for owner in [*module.modules()]:
        for leaf, layer in [*owner.named_children()]:
            if isinstance(layer, LowRankAdapter):
                layer.base.get_parameter("weight").data = of_layers[layer]
                setattr(owner, leaf, layer.base)


def draw_a(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return new values for a weight A, of the same distribution as at first: U(-1/sqrt(i), 1/sqrt(i)) for i inputs.

    Without a generator, torch's global one draws.
    """
    bound = weight[0].numel() ** -0.5
    return torch.empty(weight.shape, dtype=weight.dtype).uniform_(-bound, bound, generator=generator).to(weight.device)
