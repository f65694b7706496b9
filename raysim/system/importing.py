"""Imports of torch without the garbage collector, and of torchvision and optional packages with a clear error."""

import gc
import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from raysim.system.errors import ConfigError, first_line

DRAWING = ("matplotlib", "jinja2", "markupsafe")  # runs do without these


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the garbage collector for imports in this context, and exclude the imported objects from it forever.

    torch creates hundreds of thousands of objects. Scanning them takes 0.7 of 2.3 s, partly when Python exits.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def drawing() -> Iterator[None]:
    """Explain an import in this context that fails because a package is missing that only reports and figures need.

    Raises:
        ConfigError: one of these packages is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        named = (error.name or "").partition(".")[0]
        if named not in DRAWING:
            raise
        missing = [package for package in DRAWING if package == named or not _is_there(package)]
        needed = f"found no {', '.join(missing)}, and reports and figures need {'them' if missing[1:] else 'it'}"
        raise ConfigError(f"{needed}; pip install {' '.join(missing)}") from error


def _is_there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # its place in sys.modules is taken by something else
        return False


def import_torchvision(module: str, needed_by: str) -> Any:
    """Return a module of torchvision.

    Raises:
        ConfigError: torchvision is not installed, or was built for another torch.
    """
    try:
        return importlib.import_module(f"torchvision.{module}")
    except Exception as error:  # if built for another torch, its C++ operators may raise anything
        reason = first_line(error)
        problem = f"torchvision cannot be imported ({reason}); install the torchvision that fits your torch: "
        problem += "pip install --upgrade torch torchvision"
        raise ConfigError(f"{needed_by}: {problem}") from error


def import_extra(module: str, extra: str) -> Any:
    """Return a module of an optional package.

    Args:
        module: its name.
        extra: the extra of raysim-cfl that installs the package.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        words = f"the package {package} cannot be imported ({error}); pip install 'raysim-cfl[{extra}]'"
        raise ConfigError(words) from error
