"""The components that a config names: an entry of a table, or a custom one as package.module:name.

A table is a dict from a name to "package.module:attribute". A config is code: its components are imported and called.
So a custom component must have the signature of its kind, and must not be in Python's standard library. Configs of
other users are read with `only_named_by`, which imports no custom component.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel

from raysim.config.brought_names import NAMES
from raysim.config.document import to_plain, walk
from raysim.config.error_text import describe_unknown, find_brought, nearest, show
from raysim.config.signature import keyword_parameters, positional_parameters
from raysim.system.custom_code import module_of
from raysim.system.errors import ConfigError, describe_error

FREE = "generator"  # may have any name


@dataclass(frozen=True)
class Kind:
    """A kind of component: the table of its names, and the requirements for a custom one.

    Attributes:
        table: the place of the table.
        takes: the positional parameters.
        may_take: optional positional parameters after them.
        declares: the attribute that must be a number: the default of `key`, which every component has.
        parent: the required base class.
        listed: the name of the kind in `raysim list`, if it is listed.
        about: what the components of the kind do.
        groups: the place of the same table by group, if its components are grouped.
    """

    table: str
    takes: tuple[str, ...] = ()
    may_take: tuple[str, ...] = ()
    declares: str | None = None
    key: str | None = None
    parent: str | None = None
    listed: str | None = None
    about: str = ""
    groups: str | None = None


KINDS = {
    "method": Kind(
        "raysim.algorithms:METHODS",
        parent="raysim.api:Method",
        listed="methods",
        about="what clients and server do beyond FedAvg",
        groups="raysim.algorithms:GROUPS",
    ),
    "dataset": Kind("raysim.data:DATASETS", ("root", "download"), listed="datasets", about="the clients' data"),
    "model": Kind("raysim.models:MODELS", ("shape", "classes"), listed="models", about="the networks"),
    "task scenario": Kind(
        "raysim.data.scenario:SCENARIOS", ("dataset", "tasks", "generator"), listed="scenarios", about="what a task is"
    ),
    "partition": Kind(
        "raysim.data.partition:PARTITIONS",
        ("labels", "clients", "generator"),
        ("ids",),
        listed="partitions",
        about="how a task's samples are divided among the clients",
    ),
    "augmentation": Kind(
        "raysim.data.transforms:AUGMENTATIONS",
        ("images", "numbers"),
        listed="augmentations",
        about="random changes of the training images",
    ),
    "optimizer": Kind(
        "raysim.engine.optimizer:OPTIMIZERS",
        declares="default_lr",
        key="lr",
        listed="optimizers",
        about="local training's steps",
    ),
    "rate schedule": Kind(
        "raysim.engine.rates:RATE_SCHEDULES",
        ("lr", "progress"),
        listed="rate_schedules",
        about="how the learning rate changes",
    ),
    "memory policy": Kind(
        "raysim.memory:POLICIES",
        ("capacity",),
        parent="raysim.memory:Policy",
        listed="memory_policies",
        about="which samples a replay memory keeps",
    ),
    "sampler": Kind(
        "raysim.engine.samplers:SAMPLERS",
        ("server", "count", "generator"),
        listed="samplers",
        about="which clients take part in a round",
    ),
    "objective": Kind(
        "raysim.objectives:OBJECTIVES",
        parent="raysim.objectives.objective:Objective",
        listed="objectives",
        about="loss, prediction and metric",
    ),
    "callback": Kind(
        "raysim.callbacks:CALLBACKS",
        parent="raysim.callbacks:Callback",
        listed="callbacks",
        about="code that receives a run's events",
    ),
    "stream": Kind("raysim.federation.assignment:STREAMS", ("client", "start")),
}
"""The kinds of components. A new kind needs a line here and a block (see component.py)."""

OWN = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
INSTEAD = ", or your own as package.module:name"

_trusted: ContextVar[frozenset[str] | None] = ContextVar("_trusted", default=None)  # None: all names


def table(kind: str) -> Mapping[str, str]:
    """Import and return the table of a kind."""
    found: Mapping[str, str] = _import_table(KINDS[kind].table)
    return found


def groups(kind: str) -> Mapping[str, Mapping[str, str]]:
    """Import and return the table of a kind by group. A kind without groups has one, with an empty name."""
    place = KINDS[kind].groups
    found: Mapping[str, Mapping[str, str]] = {"": table(kind)} if place is None else _import_table(place)
    return found


def _import_table(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def resolve(kind: str, name: str) -> Callable[..., Any]:
    """Return the component with this name."""
    names = table(kind)
    if name in names:
        return _import(kind, name, names[name])
    if ":" not in name:
        listed = KINDS[kind].listed
        all_in = f"raysim list {listed}" if listed else ""
        meant = find_brought(name, NAMES.get(kind, {}))
        raise ConfigError(describe_unknown(kind, name, names, instead=INSTEAD, meant=meant, all_in=all_in))
    if not OWN.fullmatch(name):
        raise ConfigError(f"found {show(name)}, allowed: {_a(kind)} of your own as package.module:name")
    trusted = _trusted.get()
    if trusted is not None and name not in trusted and not name.startswith("raysim."):
        words = f"the {kind} {show(name)} is code of somebody's own, which is not imported from a run's directory"
        raise ConfigError(f"{words}; add --trust (in Python trust=True) if you would run it")
    if os.getcwd() not in sys.path:
        # last, so that a file in the working directory never hides an installed package; it stays, for late imports
        sys.path.append(os.getcwd())
    return _check_signature(kind, name, _import(kind, name, name))


@contextmanager
def only_named_by(*configs: object, trust: bool = False) -> Iterator[None]:
    """Import only the custom components that these configs name in this context; with `trust`, import all."""
    names = frozenset(name for config in configs for name in custom_names(config))
    token = _trusted.set(None if trust else names)
    try:
        yield
    finally:
        _trusted.reset(token)


def custom_names(config: object) -> set[str]:
    """Return all texts in a config that look like package.module:name."""
    parts = (part for keys, value in walk(to_plain(config)) for part in (value, *keys[-1:]))  # keys: methods' names
    return {part for part in parts if isinstance(part, str) and OWN.fullmatch(part)}


def names_for_actors(config: BaseModel) -> set[str]:
    """Return the names of all custom components except callbacks, which no actor imports."""
    return custom_names(config.model_copy(update={"callbacks": {}}))


def _import(kind: str, name: str, target: str) -> Callable[..., Any]:
    module_name, _, attribute = target.partition(":")
    _refuse_pythons_own(kind, name, module_name)
    try:
        with _switches_restored(module_name):
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ConfigError(
            f"{kind} {show(name)}: the module {module_name} cannot be imported: {describe_error(error)}"
        ) from error
    found = getattr(module, attribute, None)
    if found is None:
        public = [other for other in vars(module) if not other.startswith("_") and callable(vars(module)[other])]
        near = nearest(attribute, public)
        raise ConfigError(f"{kind} {show(name)}: the module {module_name} has no attribute {show(attribute)}{near}")
    if not callable(found):
        raise ConfigError(f"{kind} {show(name)}: found {show(found)}, allowed: a function or a class")
    return cast(Callable[..., Any], found)


def _switches_restored(module: str) -> AbstractContextManager[None]:
    """Undo what a module's import sets for the whole process: hosts import it at another time than a local run does."""
    if module in sys.modules:
        return nullcontext()  # every client of every round looks components up
    if "torch" not in sys.modules:
        return nullcontext()  # a run sets the switches later; to import torch here would take seconds
    from raysim.system.switches import switches_restored

    return switches_restored()


def _refuse_pythons_own(kind: str, name: str, module: str) -> None:
    if module.partition(".")[0] in sys.stdlib_module_names:
        words = f"the module {module} is Python's own, allowed: a module of your own or of an installed package"
        raise ConfigError(f"{kind} {show(name)}: {words}")


def _check_signature(kind: str, name: str, component: Callable[..., Any]) -> Callable[..., Any]:
    """Return a custom component if it has the signature of its kind. It is not called."""
    _refuse_pythons_own(kind, name, module_of(component))
    wanted = KINDS[kind]
    if wanted.parent is not None:
        parent = _import(kind, wanted.parent, wanted.parent)
        if not (isinstance(component, type) and isinstance(parent, type) and issubclass(component, parent)):
            allowed = f"a subclass of {wanted.parent.replace(':', '.')}"
            raise ConfigError(f"{kind} {show(name)}: found {show(component)}, allowed: {allowed}")
        if kind == "method" and (fields := _annotated(component)) and "__dataclass_fields__" not in vars(component):
            words = f"found a class with {fields[0]} that is no dataclass, so it has no keys"
            raise ConfigError(f"{kind} {show(name)}: {words}, allowed: @dataclass(frozen=True, kw_only=True) above it")
        if not wanted.takes:
            return component
    try:
        found, needed = positional_parameters(component)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{kind} {show(name)}: its signature cannot be read: {error}") from error
    given = (*wanted.takes, *(name for name in found[len(wanted.takes) :] if name in wanted.may_take))
    names = [name.lstrip("_") if own != FREE else own for own, name in zip(given, found, strict=False)]
    if names != list(given) or needed > len(given):
        more = "".join(f" or, in addition, {name}" for name in wanted.may_take)
        takes = f"({', '.join(wanted.takes)}){more} and its keys, which are keyword-only"
        raise ConfigError(f"{kind} {show(name)}: found the parameters ({', '.join(found)}), allowed: {takes}")
    if wanted.declares and not isinstance(getattr(component, wanted.declares, None), int | float):
        words = f"found no number {wanted.declares}, allowed: {wanted.declares} = 0.01, the default of the key lr"
        raise ConfigError(f"{kind} {show(name)}: {words}")
    if wanted.declares and "lr" in keyword_parameters(component):
        words = f"found the parameter lr, allowed: the attribute {wanted.declares}; each step receives the round's rate"
        raise ConfigError(f"{kind} {show(name)}: {words}")
    return component


def _annotated(component: type) -> list[str]:
    """Return the names that a class's own body annotates as fields."""
    found = inspect.get_annotations(component)
    return [name for name, hint in found.items() if "ClassVar" not in str(hint) and not name.startswith("_")]


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "ao" else f"a {kind}"
