"""Networks that are chains of stages, so that their forward pass can begin late: with what frozen stages returned.

`model.cache` uses this. The frozen stages at the beginning return the same for a sample every time. So this is computed
once, and is then the sample (see raysim.federation.features).
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from raysim.models.batch_statistics import BATCH_NORMS, INSTANCE_NORMS
from raysim.models.freezing import FROZEN_NORMS
from raysim.models.task_heads import TaskAware, TaskHeads
from raysim.system.errors import ConfigError

OFFERED = (
    "vit, hugging_face, resnet18, small_resnet, mnist_cnn, mcmahan_cnn, mlp, critic, a ResNet of torchvision's or "
    "timm's, or your own nn.Sequential"
)
CHANCE = re.compile(r"^p$|dropout|pdrop|drop_prob|layerdrop")
"""Names of probabilities in modules: dropouts and torchvision's StochasticDepth have p, timm's DropPath drop_prob,
recurrent layers dropout, and blocks of transformers attention_dropout or hidden_dropout."""


class Stage(NamedTuple):
    """A part of a forward pass."""

    run: Callable[[Tensor], Tensor]
    """It returns [n, ...] of the part before it, [n, ...]. One sample's result does not depend on the others."""
    parts: Sequence[nn.Module | nn.Parameter]
    """What it computes with."""


class StagedNetwork(nn.Module):
    """A network with a forward pass that is a chain of stages.

    Attributes:
        begin: the number of stages that the forward pass leaves out. Its input is then what they return.
        feature_shape: the shape of this input, for one sample; empty if no stage is left out.
        made_by: what computes the stages besides raysim and torch, such as a package with its version.
    """

    made_by = ""

    def __init__(self) -> None:
        super().__init__()
        self.begin = 0
        self.feature_shape: tuple[int, ...] = ()

    # a subclass defines it; only declared here, as a network of another library may have a layer of this name
    stages: Callable[[], Sequence[Stage]]

    def begin_at(self, begin: int) -> None:
        """Have the forward pass leave out this number of stages. Raises ConfigError: the network cannot."""
        self.begin = begin

    def in_order(self) -> Sequence[Stage]:
        """Return all stages in order. The last one returns the logits."""
        return self.stages()

    def tensors_before(self) -> Iterator[Tensor]:
        """Yield the parameters and buffers that `before` computes with."""
        for stage in self.in_order()[: self.begin]:
            yield from tensors_of(stage)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [n, ...] of samples [n, ...], or of what the stages that are left out return for them."""
        return _chained(self.in_order()[self.begin :], x)

    def before(self, x: Tensor) -> Tensor:
        """Return what the stages that are left out return for samples [n, ...]."""
        return _chained(self.in_order()[: self.begin], x)


def _chained(stages: Sequence[Stage], x: Tensor) -> Tensor:
    for stage in stages:
        x = stage.run(x)
    return x


class Chain(StagedNetwork):
    """The layers of a network that calls its children in order, under the same names.

    Args:
        layers: the children by name, in order. One module may have several names.
        prepare: what the network does with its input first.
    """

    def __init__(self, layers: Sequence[tuple[str, nn.Module]], prepare: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        for name, layer in layers:
            self.add_module(name, layer)
        self._order, self._prepare = [name for name, _ in layers], prepare

    def stages(self) -> Sequence[Stage]:
        """Return a stage for each layer, also for those of an nn.Sequential among them."""
        first = [] if self._prepare is None else [Stage(self._prepare, ())]
        chain = [link for name in self._order for link in links(self.get_submodule(name))]
        return [*first, *(Stage(link, (link,)) for link in chain)]


def links(layer: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers that a layer calls in order: its own if it is an nn.Sequential, or itself."""
    if type(layer) is not nn.Sequential:
        yield layer
        return
    for inner in layer:
        yield from links(inner)


def begin_late(module: nn.Module, x: Tensor, model: str) -> StagedNetwork:
    """Return the network with a forward pass that begins at the first stage that is not constant.

    A stage is constant if all its parameters are frozen and it acts alike in training and evaluation.

    Args:
        module: the network, which is changed or returned as a `Chain`. The names of its tensors stay.
        x: two samples.
        model: the model's name.

    Raises:
        ConfigError: the network has no stages, or its first layer is trained.
    """
    network = module if isinstance(module, StagedNetwork) else _as_staged(module)
    if network is None:
        raise ConfigError(f"model.cache: found true for {model}, which has no stages, allowed: {OFFERED}; or false")
    stages = network.in_order()
    begin = next((number for number, stage in enumerate(stages) if not _is_constant(stage)), 0)
    if not any(isinstance(tensor, nn.Parameter) for stage in stages[:begin] for tensor in tensors_of(stage)):
        raise ConfigError(f"model.cache: found true for {model}, {_describe_variable(stages[begin])}")
    network.begin_at(begin)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        network.feature_shape = tuple(network.eval().before(x).shape[1:])
    network.train()
    return network


def names_left_out(module: nn.Module) -> set[str]:
    """Return the names of the parameters of which a network that begins late has only the features."""
    stages = module.in_order()[: module.begin] if isinstance(module, StagedNetwork) else ()
    used = {id(tensor) for stage in stages for tensor in tensors_of(stage)}
    return {name for name, parameter in module.named_parameters() if id(parameter) in used}


def tensors_of(stage: Stage) -> Iterator[Tensor]:
    """Yield the parameters and buffers that a stage computes with."""
    for part in stage.parts:
        if isinstance(part, nn.Module):
            yield from part.parameters()
            yield from part.buffers()
        else:
            yield part


def _describe_variable(stage: Stage) -> str:
    """Return why a stage is not constant."""
    if any(tensor.requires_grad for tensor in tensors_of(stage)):
        allowed = "false, or frozen first layers (model.freeze, model.adapters, prompts)"
        return f"which trains its first layer, allowed: {allowed}"
    return "which has dropout in its first layer, allowed: false, or no dropout (model.dropout=0 for hugging_face)"


def _is_constant(stage: Stage) -> bool:
    modules = [module for part in stage.parts if isinstance(part, nn.Module) for module in part.modules()]
    return not any(map(_varies, modules)) and not any(tensor.requires_grad for tensor in tensors_of(stage))


def _varies(module: nn.Module) -> bool:
    """Return whether a module draws, follows its inputs' statistics, or depends on the task."""
    chances = [value for name, value in vars(module).items() if CHANCE.search(name) and type(value) in (int, float)]
    draws = any(chance > 0 for chance in chances) or isinstance(module, nn.RReLU)
    follows = isinstance(module, BATCH_NORMS) and not isinstance(module, FROZEN_NORMS)
    follows = follows or bool(getattr(module, "track_running_stats", False) and isinstance(module, INSTANCE_NORMS))
    return draws or follows or isinstance(module, TaskAware | TaskHeads)


def _as_staged(module: nn.Module) -> StagedNetwork | None:
    """Return a network with its stages, and None for others.

    Known are networks that call their children in order, and those with a function `as_staged` among their attributes.
    """
    if (as_staged := vars(module).get("as_staged")) is not None:
        staged: StagedNetwork = as_staged(module)
        return staged
    named = module.named_modules(remove_duplicate=False)
    children = [(name, child) for name, child in named if name and "." not in name]
    if type(module) is nn.Sequential:
        return Chain(children, None)
    if (type(module).__module__, type(module).__name__) == ("torchvision.models.resnet", "ResNet"):
        children.insert(-1, ("flatten", nn.Flatten()))
        return Chain(children, getattr(module, "prepare", None))
    return None
