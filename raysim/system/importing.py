"""Imports of torch, which makes objects by the hundred thousand, and of torchvision, which may not go with it."""

import gc
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from raysim.system.errors import ConfigError


@contextmanager
def uncollected() -> Iterator[None]:
    """Import in this context without the garbage collector, which else looks at all of torch again and again.

    It never does so later either, at the latest when Python ends: 0.7 s of 2.3 in all.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def import_torchvision(module: str, needed_by: str) -> Any:
    """Return a module of torchvision's. It is imported only when it is needed.

    Raises:
        ConfigError: there is no torchvision, or it was built for another torch.
    """
    try:
        return importlib.import_module(f"torchvision.{module}")
    except Exception as error:  # one built for another torch fails with whatever its C++ operators raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        words = f"torchvision cannot be imported ({reason}); install the torchvision that fits your torch: "
        words += "pip install --upgrade torch torchvision"
        raise ConfigError(f"{needed_by}: {words}") from error
