"""Checks of the names of a method's hooks: a misspelled hook would never be called."""

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType

from raysim.api.method import ClientHalf, Half, Method, ServerHalf
from raysim.config.error_text import find_nearest
from raysim.system.custom_code import is_custom, place_of
from raysim.system.errors import ConfigError

HOOKS = {
    half: [name for name, part in vars(half).items() if isinstance(part, FunctionType) and not name.startswith("_")]
    for half in (ClientHalf, ServerHalf)
}


def check_hook_names(name: str, method: Method) -> None:
    """Refuse a user-defined method with a misspelled hook, or with a hook in the wrong half.

    Raises:
        ConfigError: see above. Also if a function of the server half is unused, as a server half has no ops.
    """
    bases = {hook: base for base, hooks in HOOKS.items() for hook in hooks}
    for half, function in _unused(method):
        own = function.__name__
        if meant := own if own in bases else find_nearest(own, [*bases]):
            raise ConfigError(
                f"methods.{name}: {place_of(function)} is no hook of a {half.side} half and is never called; did "
                f"you mean the {bases[meant].side} half's {meant}? Start the name of a helper with an underscore"
            )
        if issubclass(half, ServerHalf):
            allowed = f"a hook ({', '.join(HOOKS[ServerHalf])}), or a name that starts with an underscore"
            raise ConfigError(f"methods.{name}: found {place_of(function)}, which nothing calls, allowed: {allowed}")


def describe_unused(methods: Mapping[str, Method]) -> list[str]:
    """Return a warning for each public function of a user-defined half that nothing calls or requests."""
    return [
        f"methods.{name}: {place_of(function)} is no hook, and nothing calls or requests it; start the name of a "
        "helper function with an underscore"
        for name, method in methods.items()
        for _, function in _unused(method)
    ]


def _unused(method: Method) -> Iterator[tuple[type[Half], FunctionType]]:
    """Yield the public functions of user-defined halves that are neither hooks nor mentioned in the method's code."""
    found = [
        (half, name, function)
        for half, base in ((method.Client, ClientHalf), (method.Server, ServerHalf))
        for owner in half.__mro__
        if issubclass(owner, Half) and is_custom(owner)
        for name, function in vars(owner).items()
        if isinstance(function, FunctionType) and not name.startswith("_") and not hasattr(base, name)
    ]
    if found:  # to read the code of modules takes a while
        classes = {*type(method).__mro__, *method.Client.__mro__, *method.Server.__mro__}
        used = set().union(*(_names_used(sys.modules.get(name)) for name in {kind.__module__ for kind in classes}))
        yield from ((half, function) for half, name, function in found if name not in used)


def _names_used(module: ModuleType | None) -> set[str]:
    """Return the names and the strings in the code of a module's functions and classes."""
    found: set[str] = set()
    for part in () if module is None else vars(module).values():
        if module is not None and getattr(part, "__module__", None) == module.__name__:
            for code in _codes(part):
                found |= {*code.co_names, *(text for text in code.co_consts if isinstance(text, str))}
    return found


def _codes(part: object) -> Iterator[CodeType]:
    """Yield the code of a function, or of the functions in a class, with all code that is nested in it."""
    if inspect.isclass(part):
        members: Iterable[object] = vars(part).values()
        for member in members:
            if member is not part:
                yield from _codes(member)
    for function in (part, getattr(part, "fget", None), getattr(part, "__func__", None)):
        if code := getattr(function, "__code__", None):
            yield from _nested(code)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _nested(const)
