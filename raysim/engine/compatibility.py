"""Compatibility of the methods with each other and with the run. Conflicts are refused at start, with a reason."""

from collections.abc import Callable, Iterator, Mapping
from typing import cast

import torch

from raysim.algorithms.parts import local_parameters
from raysim.algorithms.parts.sample_gradients import refused_by
from raysim.api.forgetting import ForgettingServer
from raysim.api.method import EXCLUSIVE, INSIDE_THE_LOOP, ClientHalf, Half, Method, ServerHalf, overrides
from raysim.api.setting import Need, Setting
from raysim.config import Config
from raysim.config.error_text import show
from raysim.config.lookup import resolve
from raysim.engine.custom_classes import check_classes
from raysim.engine.hook_checks import check_replies
from raysim.engine.hook_names import check_hook_names
from raysim.engine.memory_choice import TASK_ENDS, choose_memory
from raysim.engine.optimizer import Sgd, try_optimizer
from raysim.engine.vectorised.support import check_vectorised
from raysim.federation.federation import Federation
from raysim.memory import MemoryKind
from raysim.memory.making import try_policy
from raysim.models.flat import FlatModel
from raysim.models.freezing import match_names
from raysim.models.task_heads import tell_task
from raysim.system.errors import ConfigError, RunError, locate_errors
from raysim.system.seeding import guard_globals

OWN_STREAMS = ("augment", "batches", "memory", "model")


def make_methods(config: Config) -> dict[str, Method]:
    """Return the config's methods in their order, by name.

    The name prefixes the names of the method's terms and ops, and seeds its random generators. A custom method
    `package.module:name` has the name `name`. A separate method keeps the parameters of `model.local`.
    """
    methods: dict[str, Method] = {}
    if config.model.local:
        methods[local_parameters.NAME] = local_parameters.LocalParameters(patterns=config.model.local)
    for key, hyperparameters in config.methods.items():
        name = key.rpartition(":")[2]
        kind = cast(type[Method], resolve("method", key))
        check_classes(name, kind)
        method: Method = kind(**hyperparameters)
        if name in OWN_STREAMS:
            raise ConfigError(f"methods: {key} is called {name}, the name of a random generator of raysim; rename it")
        if name in methods:
            raise ConfigError(f"methods: found two methods called {name}, allowed: different names")
        methods[name] = method
    return methods


def check_methods(config: Config) -> dict[str, Method]:
    """Check that the methods are compatible with each other and with the run, and return them.

    Raises:
        ConfigError: two methods override an exclusive hook, or the run does not meet a need. Also if a hook would never
            be called because another method replaces the local loop.
    """
    methods = make_methods(config)
    for half, hooks in EXCLUSIVE.items():
        for hook in hooks:
            owners = _owners(methods, half, hook)
            if len(owners) > 1:
                raise ConfigError(
                    f"methods: {' and '.join(owners)} each override the hook {hook}, allowed: one of them; leave the "
                    "others out"
                )
    _check_replaced_loop(config, methods)
    _check_accumulated(config, methods)
    _check_senders(methods)
    _check_collecting(methods)
    _check_personalized(config, methods)
    if config.clients.forget:
        _check_forgetting(methods)
    setting = _setting(config)
    for name, method in methods.items():
        check_replies(name, method)
        check_hook_names(name, method)
        refusals = [method.refusal(setting), *(_unmet(name, method, config))]
        for refusal in filter(None, refusals):
            raise ConfigError(f"methods.{name}: {refusal}")
    memory = choose_memory(config, methods)
    _try_custom(config, memory)
    for name, method in methods.items():
        for half in (method.Client, method.Server):
            _check_half(half, name, method)
    return methods


def _setting(config: Config, samples: int | None = None, class_names: bool | None = None) -> Setting:
    """Return what methods know of the run; `samples` and `class_names` as in `check_fit`."""
    return Setting(
        lr=config.training.optimizer.lr,
        clients=config.clients.count,
        tasks=config.scenario.tasks,
        class_incremental=not config.scenario.by_domain,
        classes=config.objective.has("classes"),
        positions=config.objective.has("positions"),
        samples=samples,
        class_names=class_names,
    )


def _try_custom(config: Config, memory: MemoryKind | None) -> None:
    """Try the user-defined components that need no data. Raises RunError."""
    if ":" in config.training.optimizer.name:
        with locate_errors("training.optimizer, tried on three parameters"):
            try_optimizer(config.training.optimizer, config.training.keep_optimizer)
    if memory is not None and ":" in memory.policy:
        with locate_errors("memory.policy, tried on three samples"):
            try_policy(memory.policy, memory.capacity, memory.keys)


def check_fit_of_data(config: Config, model: FlatModel, federation: Federation) -> None:
    """Check that the methods can run with this model and these data, see `check_fit`. Raises ConfigError."""
    samples, named = sum(map(len, federation.streams)), federation.dataset.names is not None
    check_fit(config, model, federation.classes, samples, named)


def check_fit(
    config: Config, model: FlatModel, classes: int, samples: int | None = None, class_names: bool | None = None
) -> None:
    """Check that the methods can run with this model, number of classes and number of all clients' samples.

    `class_names` is whether the dataset has names of its classes.

    Raises:
        ConfigError: a method cannot run with the model. Also if a memory is too small for one sample of each class, or
            if a pattern of training.lr_scales matches no parameter. Also if the model has no room for all tasks.
    """
    tell_task(model.module, None, config.scenario.tasks)
    match_names([*model.layout], [*config.training.lr_scales], "training.lr_scales")
    check_vectorised(config, model)
    if config.training.precision == "bf16" and model.dtype == torch.float64:
        words = f"found bf16, allowed with model.name={config.model.name}, which computes in float64: full"
        raise ConfigError(f"training.precision: {words}")
    if config.training.accumulate > 1 and model.normalises:
        words = "1, as the statistics would be each part's; or freeze these layers (model.freeze)"
        problem = f"found {config.training.accumulate}, allowed with BatchNorm in the model"
        raise ConfigError(f"training.accumulate: {problem}: {words}")
    methods = make_methods(config)
    encoding = _owners(methods, ClientHalf, "encode")
    _check_sample_gradients(config, model, methods)
    setting = _setting(config, samples, class_names)
    for name, method in methods.items():
        if why := method.refusal(setting):
            raise ConfigError(f"methods.{name}: {why}")
        parts = method.head_parts()
        if len(model.head) < parts:
            raise ConfigError(
                f"methods.{name}: found no head in model.name={config.model.name}, allowed: a model that returns the "
                f"output of its last layer, a trainable nn.Linear{' with a bias' * (parts > 1)}"
            )
        key = "model.local" if name == local_parameters.NAME else f"methods.{name}"
        if why := method.unfit(model):
            raise ConfigError(f"{key}: {why}{'; or model.cache=false' * config.model.cache}")
        if encoding and method.local_bytes(model):
            words = f"layers that stay at the client, but {encoding[0]} encodes the whole update"
            raise ConfigError(f"{key}: found {words}, allowed: one of the two")
        if method.memory is not None and method.memory.by_class and config.memory.capacity < classes:
            raise ConfigError(
                f"memory.capacity: found {config.memory.capacity}, allowed with {name}: at least {classes}, one for "
                "each class"
            )


def _check_sample_gradients(config: Config, model: FlatModel, methods: Mapping[str, Method]) -> None:
    """Try the gradients of single samples if a method needs them. Raises ConfigError: the model refuses."""
    needing = {name: method for name, method in methods.items() if "sample_gradients" in needs_of(method)}
    why = refused_by(model) if needing else None
    for name, method in needing.items() if why else ():
        instead = method.instead.get("sample_gradients")
        allowed = f"set methods.{name}.{instead}" if instead else "allowed: models that torch.func.vmap can run"
        words = f"needs the gradients of single samples, which model.name={config.model.name} refuses ({why})"
        raise ConfigError(f"methods.{name}: {words}; {allowed}")


def _unmet(name: str, method: Method, config: Config) -> Iterator[str]:
    """Yield an error message for each of the method's needs that the run does not meet."""
    for need in sorted(needs_of(method) & _NEEDS.keys()):
        is_met, message = _NEEDS[need]
        if not is_met(config):
            alternative = method.instead.get(need)
            yield message if alternative is None else f"{message}, or methods.{name}.{alternative}"


def _check_half(half: type[Half], name: str, method: Method) -> None:
    """Refuse a half with a constructor that draws random numbers, or with state that a checkpoint cannot hold."""
    with guard_globals(f"methods.{name}: making its {half.side} half", half.side, ConfigError):
        instance = half(name, method)
    try:
        instance.state()
    except RunError as error:
        raise ConfigError(f"methods: {error}") from None


def needs_of(method: Method) -> frozenset[Need]:
    """Return a method's needs: those that it declares, and those that its overridden hooks imply."""
    implied: dict[Need, bool] = {
        "barrier": method.waits() or overrides(method.Server, "select"),
        "boundaries": overrides(method.Client, "begin_task"),
        "server_boundaries": overrides(method.Server, "end_task"),
        "sample_gradients": method.takes_sample_gradients(),
    }
    return method.needs | {need for need, is_implied in implied.items() if is_implied}


def _owners(methods: Mapping[str, Method], half: type[Half], hook: str) -> list[str]:
    """Return the names of the methods that override a hook of this half."""
    return [name for name, m in methods.items() if overrides(m.Client if half is ClientHalf else m.Server, hook)]


def _check_replaced_loop(config: Config, methods: Mapping[str, Method]) -> None:
    """Refuse settings and hooks of the local loop that have no effect because a method replaces the loop."""
    training = config.training
    for owner in _owners(methods, ClientHalf, "train"):
        for key, value, default in (
            ("accumulate", training.accumulate, 1),
            ("precision", training.precision, "full"),
            ("keep_optimizer", training.keep_optimizer, False),
            ("local_steps", training.local_steps, None),
            ("lr_scales", training.lr_scales, {}),
            ("clip_norm", training.clip_norm, None),
        ):
            if value != default and not (key == "local_steps" and methods[owner].Client.local_steps):
                raise ConfigError(
                    f"training.{key}: found {show(value)}, allowed with {owner}, which replaces the local loop: "
                    f"{show(default)}"
                )
        for hook in INSIDE_THE_LOOP:
            for name in _owners(methods, ClientHalf, hook):
                if name != owner:
                    raise ConfigError(
                        f"methods: {name} changes the local loop ({hook}), which {owner} replaces; leave one out"
                    )


def _check_accumulated(config: Config, methods: Mapping[str, Method]) -> None:
    """Refuse methods that read what a whole batch's pass returned, if a batch passes in parts."""
    parts = config.training.accumulate
    for name, method in methods.items() if parts > 1 else ():
        hooks = [hook for hook in ("task_loss", "penalty") if overrides(method.Client, hook)]
        if hooks or method.Client.features:
            reads = (
                f"changes the loss of a whole batch ({hooks[0]})" if hooks else "reads the features of a whole batch"
            )
            raise ConfigError(f"training.accumulate: found {parts}, allowed with {name}, which {reads}: 1")


def _check_senders(methods: Mapping[str, Method]) -> None:
    """Refuse methods that would change a model or an update that another method does not send."""
    silent = [name for name, method in methods.items() if not method.sends_model]
    senders = [name for name, method in methods.items() if method.sends_model]
    if silent and senders:
        raise ConfigError(
            f"methods: {silent[0]} never sends the model that {senders[0]} changes, allowed: one of the two, or "
            "sends_model = False in both"
        )
    if silent and (encoding := _owners(methods, ClientHalf, "encode")):
        raise ConfigError(
            f"methods: found the hook encode in {encoding[0]}, allowed with sends_model = False: no encode; send "
            "encoded terms"
        )


def _check_collecting(methods: Mapping[str, Method]) -> None:
    """Refuse a method that may read its broadcasts where a round without training begins a task at the clients.

    Only the method that collects announces in such a round. A host may lack the others' broadcasts, or have older ones.
    """
    for owner in _owners(methods, ServerHalf, "trains"):
        for name in _owners(methods, ServerHalf, "announce"):
            hooks = [hook for hook in ("receive", "begin_task") if overrides(methods[name].Client, hook)]
            if name != owner and hooks:
                raise ConfigError(
                    f"methods: found {owner} with rounds without training (trains) and {name}, whose {hooks[0]} may "
                    "read what is not announced in them, allowed: one of the two; leave the other out"
                )


def _check_personalized(config: Config, methods: Mapping[str, Method]) -> None:
    """Refuse personalized models with a method that evaluates a model of its own after rounds without training.

    Such a model is for the features of the server's model. Clients never have it.
    """
    trains, evaluated = (_owners(methods, ServerHalf, hook) for hook in ("trains", "evaluated"))
    for owner in (name for name in trains if name in evaluated):
        if config.evaluation.model == "local":
            raise ConfigError(
                f"evaluation.model: found local, allowed with {owner}, whose head the clients never have: global or "
                "global_per_client"
            )
        for name in _owners(methods, ClientHalf, "receive"):
            key = "model.local" if name == local_parameters.NAME else f"methods.{name}"
            if name != owner:
                raise ConfigError(
                    f"{key}: found layers that stay at the client, allowed with {owner}, whose head is for the "
                    "features of the server's model: none"
                )


def _check_forgetting(methods: Mapping[str, Method]) -> None:
    """Refuse requests to forget if a method could follow them exactly and, in this setting, cannot."""
    exact = {name: method for name, method in methods.items() if issubclass(method.Server, ForgettingServer)}
    for name, method in exact.items():
        assert issubclass(method.Server, ForgettingServer)
        if why := method.Server.remembers(method):
            raise ConfigError(f"methods.{name}: {why}")
    if others := [name for name in methods if exact and name not in exact]:
        allowed = "allowed: one of the two"
        raise ConfigError(
            f"clients.forget: found {next(iter(exact))}, which forgets, and {others[0]}, which remembers, {allowed}"
        )


def sends_model(methods: Mapping[str, Method]) -> bool:
    """Return whether the methods send the model and its updates."""
    return all(method.sends_model for method in methods.values())


def unsent_bytes(methods: Mapping[str, Method], model: FlatModel) -> int:
    """Return the bytes of the model that are never sent: of the layers that stay at the clients, or all."""
    if not sends_model(methods):
        return sum(vector.nbytes for vector in model.vectors)
    return sum(method.local_bytes(model) for method in methods.values())


def _has_sgd_without(config: Config, *keys: str) -> bool:
    optimizer = config.training.optimizer
    one_rate = not config.training.lr_scales
    return one_rate and optimizer.function() is Sgd and not any(optimizer.keys()[key] for key in keys)


_NEEDS: Mapping[Need, tuple[Callable[[Config], bool], str]] = {
    "classes": (
        lambda config: config.objective.has("classes"),
        "needs classes, because it distills their logits or counts their labels; set objective=classification",
    ),
    "plain_sgd": (
        lambda config: _has_sgd_without(config, "momentum", "weight_decay"),
        "needs plain SGD; set training.optimizer={name: sgd, momentum: 0, weight_decay: 0}, without training.lr_scales",
    ),
    "undecayed_sgd": (
        lambda config: _has_sgd_without(config, "weight_decay") and not config.training.keep_optimizer,
        (
            "needs updates that are linear combinations of the gradients: SGD without weight decay or kept state; "
            "set training.optimizer={name: sgd, weight_decay: 0} and training.keep_optimizer=false, without "
            "training.lr_scales"
        ),
    ),
    "unclipped": (
        lambda config: config.training.clip_norm is None,
        "needs updates that are linear combinations of the gradients, without clipping; set training.clip_norm=null",
    ),
    "earlier_logits": (
        lambda config: config.training.logits != "task",
        "trains on earlier tasks, but training.logits=task masks their classes; set training.logits to seen or all",
    ),
    "one_head": (
        lambda config: config.heads == 1,
        (
            "distills an earlier model, or reads what enters the head, but training.logits=task adds a new head per "
            "domain; set training.logits=all"
        ),
    ),
    "one_order": (
        lambda config: config.scenario.order == "same",
        "adds parts to the model task by task, for all clients at once; set scenario.order=same",
    ),
    "unlabelled": (
        lambda config: config.dataset.unlabelled is not None or config.dataset.label_rate is not None,
        "learns from samples without labels; set dataset.unlabelled={name: ...} or dataset.label_rate",
    ),
    "boundaries": (lambda config: config.scenario.windows is None, f"needs to know {TASK_ENDS}"),
    "server_boundaries": (
        lambda config: config.scenario.boundaries == "synchronous",
        "needs boundaries that all clients have at the same time; set scenario.boundaries=synchronous",
    ),
    "barrier": (
        lambda config: config.schedule.kind == "synchronous",
        "needs rounds that wait for their clients; set schedule.kind=synchronous",
    ),
}
"""For each need: a function that returns whether a config meets it, and the error message if not.

`sample_gradients` is not here: the model meets it or not; see `check_fit`.
"""
