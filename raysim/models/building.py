"""Build a run's model, with the same initial weights on every host. A separate random stream draws them."""

import torch
from torch import Tensor, nn

from raysim.config import Config
from raysim.models.arrays import Arrays, SplitInputs
from raysim.models.flat import FlatModel
from raysim.models.freezing import freeze_statistics, share_frozen
from raysim.models.hugging_face.network import PretrainedNetwork
from raysim.models.initial_weights import set_weights
from raysim.models.inputs import Ids, first_shape, two_samples
from raysim.models.layers import find_head
from raysim.models.precision import compute_in_bfloat16
from raysim.models.recomputing import recompute_blocks
from raysim.models.stages import begin_late
from raysim.models.task_heads import TaskHeads
from raysim.system import seeding
from raysim.system.capacity import require_memory
from raysim.system.custom_code import is_custom, place_of
from raysim.system.errors import ConfigError, describe_error
from raysim.system.switches import guard_switches


def build_model(
    config: Config, shape: tuple[int, ...], classes: int, vocabulary: Ids = None, *, new_head: bool = True
) -> nn.Module:
    """Build the module for samples of `shape` with the run's initial weights. Global generators are unchanged.

    If samples are ids below `vocabulary`, an unset model key `vocabulary` gets this number. If it is a tuple, samples
    are rows of a table, and an unset key `categories` gets these numbers. If it is `Arrays`, the model receives a dict
    of tensors, and its function a dict of shapes. If a file of weights
    (model.weights) is for other classes and `new_head` is true, the head keeps its initial weights. With `model.cache`
    the module's inputs are features (see `begin_late`); `shape` is still that of the samples before.

    Raises:
        ConfigError: the model's function failed or did not return a module, or the file of weights does not fit.
    """
    return _build(config, shape, classes, vocabulary, new_head)[0]


def _build(
    config: Config, shape: tuple[int, ...], classes: int, vocabulary: Ids, new_head: bool
) -> tuple[nn.Module, list[str]]:
    """Build the module, see `build_model`. Return also what was done with its file of weights."""
    spec = config.model

    def samples() -> Tensor:
        return two_samples(module, shape, vocabulary)

    with seeding.generators_restored():
        seeding.seed_all(config.seed, "initial weights")
        module = _construct(config, shape, classes, vocabulary)
        if spec.checkpointing:
            recompute_blocks(module, name_model(config))
        if config.heads > 1:
            module = _with_heads(module, config, samples())
    weights = set_weights(module, spec, config.seed, samples, new_head, name_model(config))
    freeze_statistics(module)
    if spec.cache:
        module = begin_late(module, samples(), name_model(config))
    if spec.precision == "bfloat16":
        compute_in_bfloat16(module, name_model(config))
    share_frozen(module, weights.tensors)  # last, as it compares the types of numbers
    return module, weights.notes


def _construct(config: Config, shape: tuple[int, ...], classes: int, vocabulary: Ids) -> nn.Module:
    """Call the model's function. The default device and the generators are the caller's."""
    spec, keys = config.model, config.model.keys()
    if isinstance(vocabulary, tuple) and "categories" not in keys:
        raise ConfigError(
            f"model.name: found {spec.name} for a table with categories, allowed: table_mlp, or your own with a key "
            "categories; without categories, list these columns in dataset.ignore"
        )
    try:
        numbers_of_ids = "categories" if isinstance(vocabulary, tuple) else "vocabulary"
        if keys.get(numbers_of_ids, 0) is None:
            keys[numbers_of_ids] = vocabulary.vocabulary if isinstance(vocabulary, Arrays) else vocabulary
        module = spec.function()(vocabulary.shapes if isinstance(vocabulary, Arrays) else shape, classes, **keys)
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"model.name: {spec.name} could not be built for samples of shape {shape}: {describe_error(error)}"
        ) from error
    if not isinstance(module, nn.Module):
        problem = f"{name_model(config)} returned {type(module).__name__}"
        raise ConfigError(f"model.name: {problem}, allowed: a torch.nn.Module")
    if isinstance(vocabulary, Arrays):
        module.register_forward_pre_hook(SplitInputs(vocabulary))
    return module


def _require_room(config: Config, shape: tuple[int, ...], classes: int, vocabulary: Ids) -> None:
    """Refuse a built-in model that takes more than half of this machine's memory, before it takes any.

    A custom model's function is called only once, as it may do more than build.
    """
    if is_custom(config.model.function()):
        return
    with seeding.generators_restored(), torch.device("meta"):
        module = _construct(config, shape, classes, vocabulary)
    nbytes = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
    require_memory(nbytes, "model", f"{config.model.name} of {sum(p.numel() for p in module.parameters()):,} numbers")


def check_model(
    config: Config, shape: tuple[int, ...], classes: int, vocabulary: Ids = None, *, new_head: bool = True
) -> FlatModel:
    """Build the model and try it on two samples, so that an unsuitable one is refused before a run starts.

    Sets the model's `head`, `shape` and `notes`.

    Raises:
        ConfigError: see `build_model`; or the file of weights has NaN. Or the model fails on the samples, or its output
            does not have the objective's shape, such as [B, classes] for classification. A pretrained language model
            may have more ids than the data. Or it changes a switch of torch's.
    """
    with guard_switches(f"model.name: {name_model(config)}", ConfigError):
        return _build_and_try(config, shape, classes, vocabulary, new_head)


def _build_and_try(config: Config, shape: tuple[int, ...], classes: int, vocabulary: Ids, new_head: bool) -> FlatModel:
    """Return the model, see `check_model`."""
    _require_room(config, shape, classes, vocabulary)
    module, notes = _build(config, shape, classes, vocabulary, new_head)
    if isinstance(module, PretrainedNetwork) and config.resources.cuda_graphs:
        why = "as its passes depend on the values of masks, allowed: false"
        raise ConfigError(f"resources.cuda_graphs: found true for {config.model.name}, {why}")
    model = FlatModel(module)
    model.notes = tuple(notes)
    for name, parameter in model.module.named_parameters() if config.model.weights is not None else ():
        if bool(parameter.isnan().any()):
            raise ConfigError(f"model.weights: {config.model.weights} has NaN in {name}, allowed: finite values")
    model.module.eval()
    x = two_samples(model.module, shape, vocabulary)
    try:
        with torch.random.fork_rng(devices=[]):
            logits = model(x)
    except (Exception, SystemExit) as error:
        ids = f", ids (int64) from 0 to {vocabulary - 1:,}" if isinstance(vocabulary, int) else ""
        raise ConfigError(
            f"model.name: {config.model.name} cannot take samples of shape {shape}{ids}: {describe_error(error)}; "
            "choose a model that fits the dataset"
        ) from error
    actual = tuple(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
    expected = (2, *config.objective.make().output_shape(first_shape(shape, vocabulary), classes))
    padded = isinstance(actual, tuple) and actual[:-1] == expected[:-1] and actual[-1] > classes
    if actual != expected and not (padded and isinstance(module, PretrainedNetwork) and len(expected) > 2):
        raise ConfigError(
            f"model.name: {name_model(config)} returns {actual} for 2 samples, allowed: a tensor of {expected}"
        )
    if not logits.requires_grad:
        allowed = "one that autograd can follow, without detach() or torch.no_grad()"
        raise ConfigError(f"model.name: {name_model(config)} returns a tensor without a gradient, allowed: {allowed}")
    if not bool(logits.isfinite().all()):
        raise ConfigError(
            f"model.name: {name_model(config)} returns NaN or infinite values before training, allowed: finite values"
        )
    if model.normalises and config.training.batch_size == 1:
        raise ConfigError("training.batch_size: found 1, allowed with BatchNorm in the model: 2 and more")
    model.head, model.shape = find_head(model.module, x), tuple(x.shape[1:])
    return model


def name_model(config: Config) -> str:
    """Return the model's name for messages, and the place of definition of a custom model."""
    function = config.model.function()
    return place_of(function) if is_custom(function) else config.model.name


def _with_heads(module: nn.Module, config: Config, x: Tensor) -> nn.Module:
    """Return the model with a head for each task. The weights of additional heads are drawn here."""
    try:
        head = find_head(module, x)
    except Exception:  # check_model runs the same pass and reports the error
        return module
    if not head:
        raise ConfigError(
            f"training.logits: found task, which needs a head per domain, but found no head in model.name="
            f"{config.model.name}, allowed: all, or a model that returns the output of its last layer, a trained "
            "nn.Linear"
        )
    owner, _, name = head[0].rpartition(".")[0].rpartition(".")
    linear = module.get_submodule(f"{owner}.{name}" if owner else name)
    assert isinstance(linear, nn.Linear)
    heads = TaskHeads(linear, config.heads)
    if linear is module:
        return heads
    setattr(module.get_submodule(owner), name, heads)
    return module
