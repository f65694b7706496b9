"""A new model's weights: of a file, of a folder, of adapters, or as they were drawn; and its frozen parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from raysim.config.component_blocks import Adapters, Model
from raysim.models.adapters import add_adapters
from raysim.models.freezing import freeze
from raysim.models.hugging_face.network import PretrainedNetwork
from raysim.models.hugging_face.prompted import PromptedNetwork
from raysim.models.layers import find_head
from raysim.models.peft_layout import load_adapters
from raysim.models.random_features import add_random_features, has_random_features
from raysim.models.weight_files import WeightsFile, load_weights, read_weights
from raysim.models.weight_sources import find_model_weights
from raysim.system import seeding
from raysim.system.errors import ConfigError
from raysim.system.hub_files import holds_adapters


@dataclass
class FileWeights:
    """The tensors of files by the model's names, mapped into memory, and what was done with them, a phrase each."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def set_weights(
    module: nn.Module, spec: Model, seed: int, samples: Callable[[], Tensor], new_head: bool, name: str
) -> FileWeights:
    """Load the weights that `spec` names, add its adapters and random features, and freeze what it freezes.

    The file of a run with adapters or random features is loaded after they are added, any other file before.

    Args:
        module: the model with drawn weights, which is changed.
        spec: the model's block.
        seed: the run's seed, for the weights of adapters and random features.
        samples: returns two samples.
        new_head: whether a head that does not fit the file keeps its drawn weights.
        name: the model's name, for errors.

    Raises:
        ConfigError: a file cannot be found or read, or does not fit the model. Or the model has no place for adapters
            or random features.
    """
    if spec.adapters is None:
        freeze(module, spec.freeze)
    path = find_model_weights(spec)
    if path is None or holds_adapters(path):
        return _set_without_file(module, spec, seed, samples, path, name)
    weights = read_weights(module, path, spec.prefix)
    with_adapters = spec.adapters is not None and any(name.endswith(".lora_a.weight") for name in weights.tensors)
    with_features = spec.random_features is not None and has_random_features(module, samples(), weights.tensors)
    if not with_adapters and not with_features:
        _load(module, spec, weights, samples, new_head)
    _adapt(module, spec, seed, samples)
    if with_adapters and not with_features:  # the model of a run, not the file that it began with
        _load(module, spec, weights, samples, new_head)
    _add_features(module, spec, seed, samples, name)
    if with_features:  # of a run, too
        _load(module, spec, weights, samples, new_head)
    own = module.notes if isinstance(module, PretrainedNetwork) else ()
    return FileWeights(weights.tensors, [*own, *weights.notes])


def _set_without_file(
    module: nn.Module, spec: Model, seed: int, samples: Callable[[], Tensor], adapters: Path | None, name: str
) -> FileWeights:
    """Do the same for a model that has the weights of its folder, if any, and perhaps those of a file of adapters."""
    _adapt(module, spec, seed, samples)
    notes = [] if adapters is None else load_adapters(module, adapters, spec.adapters)
    _add_features(module, spec, seed, samples, name)
    if not isinstance(module, PretrainedNetwork):
        return FileWeights(notes=notes)
    return FileWeights(module.mapped_tensors(), [*module.notes, *notes])


def _load(module: nn.Module, spec: Model, weights: WeightsFile, samples: Callable[[], Tensor], new_head: bool) -> None:
    load_weights(module, weights, spec.prefix, samples() if new_head else None)


def _adapt(module: nn.Module, spec: Model, seed: int, samples: Callable[[], Tensor]) -> None:
    """Add the adapters, if there are some, and freeze the rest. Two samples find the head."""
    if spec.adapters is not None:
        if isinstance(module, PromptedNetwork):
            problem = "found adapters with model.prompts of hugging_face, whose blocks are frozen"
            raise ConfigError(f"model.adapters: {problem}, allowed: null, or model.prompts=null")
        _add(module, spec.adapters, seed, samples())
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


def _add_features(module: nn.Module, spec: Model, seed: int, samples: Callable[[], Tensor], name: str) -> None:
    """Add the layer of random features, if there is one."""
    if spec.random_features is not None:
        add_random_features(module, samples(), spec.random_features, seed, name)
