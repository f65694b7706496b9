"""Building a run's model with the same initial weights on every host, drawn from a separate random stream."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from raysim.config import Config
from raysim.config.error_text import shorten
from raysim.models.flat import FlatModel
from raysim.models.layers import find_head
from raysim.models.task_heads import TaskHeads
from raysim.system import seeding
from raysim.system.errors import ConfigError, describe_error


def build_model(config: Config, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build the module for samples of `shape` with the run's initial weights; torch's generators are not changed.

    Raises:
        ConfigError: the model's function failed or returned no module, or the file of weights does not fit.
    """
    knobs = config.model
    with seeding.torch_restored():
        seeding.seed_torch(config.seed, "initial weights")
        try:
            module = knobs.function()(shape, classes, **knobs.keys())
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"model.name: {knobs.name} could not be built for samples of shape {shape}: {describe_error(error)}"
            ) from error
        if not isinstance(module, nn.Module):
            raise ConfigError(f"model.name: {knobs.name} returned {type(module).__name__}, allowed: a torch.nn.Module")
        if config.heads > 1:
            module = _with_heads(module, config, shape)
    if knobs.weights is not None:
        _load(module, knobs.weights)
    return module


def check_model(config: Config, shape: tuple[int, ...], classes: int) -> FlatModel:
    """Build the model and try it on two samples of zeros, so that an unsuitable one is refused before a run starts.

    Its head is known then.

    Raises:
        ConfigError: see `build_model`; or the model cannot take the samples, or its output is not [B, classes].
    """
    model = FlatModel(build_model(config, shape, classes))
    model.module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = model(torch.zeros(2, *shape, dtype=model.dtype))
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"model.name: {config.model.name} cannot take samples of shape {shape}: {describe_error(error)}; "
            "choose a model that fits the data set"
        ) from error
    found = tuple(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
    if found != (2, classes):
        raise ConfigError(
            f"model.name: {config.model.name} returns {found} for 2 samples, allowed: a tensor of {(2, classes)}"
        )
    if model.normalises and config.training.batch_size == 1:
        raise ConfigError("training.batch_size: found 1, allowed with BatchNorm in the model: 2 and more")
    model.head = find_head(model.module, shape)
    return model


def _with_heads(module: nn.Module, config: Config, shape: tuple[int, ...]) -> nn.Module:
    """Return the model with a head for each task in place of its own, whose other weights are drawn now."""
    try:
        head = find_head(module, shape)
    except Exception:  # check_model tries the same, and says why
        return module
    if not head:
        raise ConfigError(
            f"training.logits: found task, with which each domain has a head of its own, but no head in model.name="
            f"{config.model.name}; looked for a trained nn.Linear, the last one of the forward pass, whose output is "
            "what the model returns; end the model with one, or set it to all"
        )
    above, _, leaf = head[0].rpartition(".")[0].rpartition(".")
    linear = module.get_submodule(f"{above}.{leaf}" if above else leaf)
    assert isinstance(linear, nn.Linear)
    heads = TaskHeads(linear, config.heads)
    if linear is module:
        return heads
    setattr(module.get_submodule(above), leaf, heads)
    return module


def _load(module: nn.Module, weights: str) -> None:
    path = Path(weights).expanduser()
    if not os.path.isfile(path):  # pathlib's raises an error if the path is not a valid one
        raise ConfigError(f"model.weights: there is no file {shorten(str(path))}")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        module.load_state_dict(state)
    except Exception as error:
        if "weights_only" in str(error):  # torch says how to run what is in the file
            words = "holds more than tensors, or is no file of torch's; allowed: a state_dict that torch.save wrote"
            raise ConfigError(f"model.weights: {path} {words}") from error
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ConfigError(f"model.weights: {path} does not fit the model: {' '.join(said[:2])}") from error
