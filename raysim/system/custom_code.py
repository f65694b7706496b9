"""Custom components: whether a component is user-defined, where it is defined, and which files other machines need."""

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from raysim.system.errors import INSTALLED, ConfigError

Component = Callable[..., Any]


def is_custom(component: Component) -> bool:
    """Return whether a component is user-defined, and not raysim's."""
    return module_of(component).partition(".")[0] != "raysim"


def place_of(component: Component) -> str:
    """Return a component's name and where it is defined, "mine (things.py:12)", for messages about what it did."""
    bare: Any = bare_function(component)
    name = getattr(bare, "__qualname__", None) or type(bare).__qualname__
    if code := getattr(inspect.unwrap(bare), "__code__", None):
        return f"{name} ({code.co_filename}:{code.co_firstlineno})"
    try:
        return f"{name} ({inspect.getsourcefile(bare)}:{inspect.getsourcelines(bare)[1]})"
    except (OSError, TypeError):  # an instance, or code without source
        return str(name)


def module_of(component: Component) -> str:
    """Return the module in which a function or a class, or the class of an object, is defined."""
    bare = bare_function(component)
    return str(getattr(bare, "__module__", None) or "")


def bare_function(component: Component) -> Component:
    """Return what a component calls, without the arguments that functools.partial has bound."""
    while isinstance(component, functools.partial):
        component = component.func
    return component


def refuse_main(names: Iterable[str]) -> None:
    """Refuse names such as __main__:function: actors have another main module. Raises ConfigError."""
    found = sorted(name for name in names if name.startswith("__main__:"))
    if found:
        own = found[0].partition(":")[2]
        words = f"found '{found[0]}', which actors cannot import, allowed: package.module:{own}; move it into a module"
        raise ConfigError(f"{words} of its own, or run in this process (local=True, --local)")


def find_custom_code(names: Iterable[str]) -> list[Path]:
    """Return the files and folders of the top-level modules and packages of names such as package.module:name.

    Installed packages are not among them: they must be installed on the other machines too, as raysim is.
    """
    modules = {name.partition(":")[0].partition(".")[0] for name in names}
    found = {path for name in modules - {"raysim"} for path in _paths(name)}
    return sorted(path for path in found if not any(path.is_relative_to(place) for place in INSTALLED))


def digest_custom_code(names: Iterable[str]) -> str | None:
    """Return a digest of the source of such modules and packages, as it is on the disk now. None if there is none."""
    places = find_custom_code(names)
    files = [file for place in places for file in ([place] if place.is_file() else sorted(place.rglob("*.py")))]
    digest = hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files))
    return digest.hexdigest() if files else None


def _paths(name: str) -> Iterator[Path]:
    """Yield where a module lies that the config has been read with; text that only looks like a name has none."""
    module = sys.modules.get(name)
    if module is None:
        return
    if hasattr(module, "__path__"):
        yield from (Path(place).resolve() for place in module.__path__)
    elif (file := getattr(module, "__file__", None)) is not None:  # a notebook has none
        yield Path(file).resolve()
