"""Checks of user-defined classes before a run starts: what is wrong in them would have no effect, or end it late."""

import inspect
from collections.abc import Iterable, Iterator
from typing import get_args

import numpy as np
from torch import Tensor

from raysim.api.method import ClientHalf, Half, Method, ServerHalf, overrides
from raysim.api.setting import Need
from raysim.engine.hook_names import HOOKS
from raysim.system.custom_code import is_custom, place_of
from raysim.system.errors import ConfigError

HALVES: dict[str, type[Half]] = {"Client": ClientHalf, "Server": ServerHalf}


def check_classes(name: str, kind: type[Method]) -> None:
    """Check a user-defined method's class and its halves. Raises ConfigError: see the functions below."""
    if not is_custom(kind):
        return
    for attribute, base in HALVES.items():
        half = getattr(kind, attribute)
        if not (isinstance(half, type) and issubclass(half, base)):
            allowed = f"a subclass of raysim.api.{base.__name__}"
            raise ConfigError(f"methods.{name}: found {attribute} = {half!r:.80}, allowed: {allowed}")
    for why in (*_unused_halves(kind), *_unknown_needs(kind), *_wrong_parameters(kind), *_shared_state(kind)):
        raise ConfigError(f"methods.{name}: {why}")


def _unused_halves(kind: type[Method]) -> Iterator[str]:
    """Yield the halves in a method that have another name than Client or Server, unless these derive from them."""
    used = {*HALVES.values(), *kind.Client.__mro__, *kind.Server.__mro__}
    for attribute, part in [pair for owner in kind.__mro__ if is_custom(owner) for pair in vars(owner).items()]:
        if isinstance(part, type) and issubclass(part, Half) and attribute not in HALVES and part not in used:
            yield f"found the half {attribute}, which nothing uses, allowed: the names {' and '.join(HALVES)}"


def _unknown_needs(kind: type[Method]) -> Iterator[str]:
    for need in sorted({*kind.needs} - {*get_args(Need)}):
        yield f"its needs have {need!r}, allowed: {', '.join(get_args(Need))}"


def _wrong_parameters(kind: type[Method]) -> Iterator[str]:
    for base, half in ((ClientHalf, kind.Client), (ServerHalf, kind.Server)):
        yield from wrong_parameters(base, object.__new__(half), [hook for hook in HOOKS[base] if overrides(half, hook)])


def wrong_parameters(base: type, part: object, hooks: Iterable[str]) -> Iterator[str]:
    """Yield the hooks of a part that cannot be called with the arguments that they get: those of the base class."""
    for hook in hooks:
        _, *wanted = inspect.signature(getattr(base, hook)).parameters
        if not takes(found := getattr(part, hook), len(wanted)):
            yield f"{place_of(found)} cannot be called, allowed: {hook}(self, {', '.join(wanted)})"


def takes(function: object, arguments: int) -> bool:
    """Return whether a function can be called with this many positional arguments."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    return True


def _shared_state(kind: type[Method]) -> Iterator[str]:
    """Yield the attributes of halves' classes that all clients of a process would change together."""
    for owner in (*kind.Client.__mro__, *kind.Server.__mro__):
        for key, value in vars(owner).items() if is_custom(owner) else ():
            constant = key.isupper() or key.startswith("__") or hasattr(Half, key)
            if isinstance(value, list | dict | set | Tensor | np.ndarray) and not constant:
                words = f"found {key} in the class {place_of(owner)}, which all clients of a process share"
                yield f"{words}, allowed: an attribute that __init__ makes, or a constant {key.upper()}"
