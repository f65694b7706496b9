"""Which methods and models train several clients at a time."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from raysim.api.method import ClientHalf, Method, overrides
from raysim.config import Config, load
from raysim.engine.hook_checks import IN_STEPS
from raysim.engine.vectorised.layers import Layers
from raysim.engine.vectorised.program import FEWEST
from raysim.models.flat import FlatModel
from raysim.models.inputs import two_samples_of
from raysim.models.task_heads import is_task_aware
from raysim.system.errors import ConfigError, describe_error

SIZES_ON_GPU, SIZES_ON_CPU = (2_000_000, 5_000_000), (10_000, 50_000)
"""The most parameters of a model that is faster together, and of one that is not slower; see docs/benchmarks.md."""
MANY = 8  # clients for which advice is worthwhile
TRIED_ROWS = (3, 7, 13)  # odd numbers, for which kernels compute the last values of a row in another way
LARGE = 10**6  # parameters of a model for which a trial takes seconds
ROUNDS = "rounds differently with other clients in a block, as some activations do"
NEVER = ("batches", "observe", "train")  # hooks of one client's own loop


def hooks_of_one_client(methods: Mapping[str, Method]) -> list[str]:
    """Return the hooks, as METHOD.HOOK, for which a run trains one client at a time in spite of training.vectorise."""
    found = []
    for name, method in methods.items():
        half = method.Client
        hooks = [hook for hook in IN_STEPS if overrides(half, hook)]
        found += [f"{name}.{hook}" for hook in hooks if hook in NEVER or not _declares(half, hook)]
        found += [f"{name}.features"] * half.features
    return found


def _declares(half: type[ClientHalf], hook: str) -> bool:
    """Return whether the class that defines a hook says that it runs under vmap; a subclass says it for its hooks."""
    return bool(vars(next(base for base in half.__mro__ if hook in vars(base))).get("vectorises"))


def clients_together(config: Config, methods: Mapping[str, Method]) -> int:
    """Return how many clients a host of a run trains at a time; see training.vectorise."""
    return 1 if hooks_of_one_client(methods) else config.training.vectorise or 1


def describe_one_at_a_time(config: Config, methods: Mapping[str, Method]) -> list[str]:
    """Return a warning if training.vectorise has no effect with these methods."""
    hooks = hooks_of_one_client(methods)
    if config.training.vectorise is None or not hooks:
        return []
    words = f"clients train one at a time, as {', '.join(hooks)} cannot run for several at once"
    return [f"training.vectorise: {words}"]


def advise(config: Config, methods: Mapping[str, Method], model: FlatModel) -> str | None:
    """Return advice about training.vectorise, from the measurements in docs/benchmarks.md, or None."""
    size, on_gpu = len(model.parameters), config.resources.gpus_per_actor > 0
    where, fast, slow = ("a GPU", *SIZES_ON_GPU) if on_gpu else ("a CPU", *SIZES_ON_CPU)
    if config.training.vectorise is not None and size > slow:
        return f"on {where}, a model of {size:,} parameters is likely faster with training.vectorise=null"
    packed = config.resources.clients_per_actor != 1 and config.clients.count >= MANY
    if config.training.vectorise is None and size <= fast and packed and _is_possible(config, methods, model):
        words = f"a model of {size:,} parameters may train several times as fast with training.vectorise=64"
        return f"on {where}, {words}, which changes the last bits of results"
    return None


def _is_possible(config: Config, methods: Mapping[str, Method], model: FlatModel) -> bool:
    """Return whether clients of a run could train together."""
    try:
        load(config, {"training.vectorise": FEWEST})
    except ConfigError:
        return False
    return not hooks_of_one_client(methods) and _unfit(model, config.training.batch_size) is None


def check_vectorised(config: Config, model: FlatModel) -> None:
    """Try the model on samples of two clients. Raises ConfigError: it cannot compute for several clients at once."""
    if config.training.vectorise is not None and (why := _unfit(model, config.training.batch_size)):
        allowed = "allowed: layers that torch.vmap can run; or training.vectorise=null"
        raise ConfigError(f"training.vectorise: the model {config.model.name} {why}; {allowed}")


def _unfit(model: FlatModel, batch: int) -> str | None:
    """Return why a model cannot compute for several clients at once, or None."""
    if is_task_aware(model.module):
        return "depends on the task, which differs between clients"
    x = two_samples_of(model.module, model.shape)
    modes = [(layer, layer.training) for layer in model.module.modules()]
    try:
        model.module.train()
        for rows in {*TRIED_ROWS, batch} if len(model.parameters) < LARGE else TRIED_ROWS[:1]:
            found = zip(_try(model, x, rows, (2, 0)), _try(model, x, rows, (0, 1, 2)), strict=True)
            if not all(torch.equal(pair, three[[2, 0]]) for pair, three in found):
                return ROUNDS
    except Exception as error:
        return f"cannot compute for several clients at once: {describe_error(error)}"
    finally:
        for layer, mode in modes:
            layer.training = mode
    return None


def _try(model: FlatModel, x: Tensor, rows: int, clients: Sequence[int]) -> list[Tensor]:
    """Return the logits and gradients of a model for some clients, each with its own weights."""
    draws = torch.Generator().manual_seed(0)
    scales = torch.rand(FEWEST + 1, 1, generator=draws, dtype=model.dtype).to(model.device)[[*clients]] + 0.5
    parameters, buffers, integers = (v.expand(len(clients), -1).clone() for v in model.vectors)
    noise = 4 * torch.randn(rows, *x.shape[1:], generator=draws, dtype=model.dtype).to(x.device)
    samples = noise if x.is_floating_point() else x.repeat(rows, *[1] * (x.dim() - 1))[:rows]
    parameters = (parameters * scales).requires_grad_()

    def logits_of(parameters: Tensor, buffers: Tensor, integers: Tensor, key: Tensor, samples: Tensor) -> Tensor:
        with Layers(key):
            return model.call_with(samples, parameters, buffers, integers)

    keys, of_each = torch.tensor(clients, device=model.device), None
    if not samples.is_floating_point():  # a text model may decide by the ids of one client, such as by their padding
        of_each, samples = 0, samples.expand(len(clients), *samples.shape)
    logits = torch.vmap(logits_of, (0, 0, 0, 0, of_each))(parameters, buffers, integers, keys, samples)
    (gradient,) = torch.autograd.grad(logits.logsumexp(-1).sum(), parameters)
    return [logits.detach(), gradient]
