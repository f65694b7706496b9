"""A new model's weights: of a file, of a folder, of adapters, or as they were drawn; and its frozen parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from raysim.config.component_blocks import Adapters, Model
from raysim.models.adapters import add_adapters
from raysim.models.freezing import freeze
from raysim.models.hugging_face.network import PretrainedNetwork
from raysim.models.layers import find_head
from raysim.models.peft_layout import load_adapters
from raysim.models.random_features import add_random_features, holds_random_features
from raysim.models.weight_files import load_weights, read_weights
from raysim.models.weight_sources import find_model_weights
from raysim.system import seeding
from raysim.system.hub_files import holds_adapters


@dataclass
class FileWeights:
    """The tensors of files by the model's names, mapped into memory, and what was done with them, a phrase each."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def set_weights(module: nn.Module, spec: Model, seed: int, x: Tensor, new_head: bool, model: str) -> FileWeights:
    """Load the weights that `spec` names, add its adapters and random layer, and freeze what it freezes.

    A file of a run with adapters or a random layer is loaded after they are added, any other file before.

    Args:
        module: the model with drawn weights, which is changed.
        spec: the model's block.
        seed: the run's seed, for the adapters' weights.
        x: two samples.
        new_head: whether a head that does not fit the file keeps its drawn weights.
        model: the model's name, for errors.

    Raises:
        ConfigError: a file cannot be found or read, or does not fit the model. Or this has no head for a random layer.
    """
    if spec.adapters is None:
        freeze(module, spec.freeze)
    path = find_model_weights(spec)
    if path is None or holds_adapters(path):
        _adapt(module, spec, seed, x)
        notes = [] if path is None else load_adapters(module, path, spec.adapters)
        _add_random_features(module, spec, seed, x, model)
        if not isinstance(module, PretrainedNetwork):
            return FileWeights(notes=notes)
        return FileWeights(module.mapped_tensors(), [*module.notes, *notes])
    weights, loaded = read_weights(module, path, spec.prefix), x if new_head else None
    with_adapters = spec.adapters is not None and any(name.endswith(".lora_a.weight") for name in weights.tensors)
    with_layer = spec.random_features is not None and holds_random_features(weights.tensors, module, x)
    # with additions it is the model of a run, not the file that it began with
    if not with_adapters and not with_layer:
        load_weights(module, weights, spec.prefix, loaded)
    _adapt(module, spec, seed, x)
    if with_adapters and not with_layer:
        load_weights(module, weights, spec.prefix, loaded)
    _add_random_features(module, spec, seed, x, model)
    if with_layer:
        load_weights(module, weights, spec.prefix, loaded)
    own = module.notes if isinstance(module, PretrainedNetwork) else ()
    return FileWeights(weights.tensors, [*own, *weights.notes])


def _add_random_features(module: nn.Module, spec: Model, seed: int, x: Tensor, model: str) -> None:
    """Add the random layer, if there is one."""
    if spec.random_features is not None:
        add_random_features(module, x, spec.random_features, seed, model)


def _adapt(module: nn.Module, spec: Model, seed: int, x: Tensor) -> None:
    """Add the adapters, if there are some, and freeze the rest. x are two samples, which find the head."""
    if spec.adapters is not None:
        _add(module, spec.adapters, seed, x)
        freeze(module, spec.freeze)


def _add(module: nn.Module, adapters: Adapters, seed: int, x: Tensor) -> None:
    """Add the adapters. A separate random stream draws them."""
    with seeding.torch_restored():
        seeding.seed_torch(seed, "initial weights", "adapters")
        head = find_head(module, x)
        add_adapters(
            module.train(),
            adapters.rank,
            adapters.where,
            adapters.scale,
            head=head,
            train_head=adapters.head,
            dropout=adapters.dropout,
        )
