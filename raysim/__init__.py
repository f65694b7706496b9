"""raysim: a Ray-based, scalable simulation framework for continual federated learning.

What is run from Python stands here; what a method is written with, in raysim.api.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from raysim import moved

if TYPE_CHECKING:
    from raysim.evaluation.evaluate import Evaluated, evaluate
    from raysim.launch.run import run
    from raysim.records.result import Result
    from raysim.records.result import load_result as load
    from raysim.sweeps.sweep import sweep
    from raysim.system.errors import ConfigError, RunError

__all__ = ["ConfigError", "Evaluated", "Result", "RunError", "evaluate", "load", "run", "sweep"]

_HOMES = {
    "ConfigError": "raysim.system.errors:ConfigError",
    "Evaluated": "raysim.evaluation.evaluate:Evaluated",
    "Result": "raysim.records.result:Result",
    "RunError": "raysim.system.errors:RunError",
    "evaluate": "raysim.evaluation.evaluate:evaluate",
    "load": "raysim.records.result:load_result",
    "run": "raysim.launch.run:run",
    "sweep": "raysim.sweeps.sweep:sweep",
}

sys.meta_path.append(moved.Signpost())


def __getattr__(name: str) -> Any:
    # torch takes seconds to import: a wrong command line must not wait for it
    if name in moved.NAMES:
        raise ImportError(moved.where(f"raysim.{name}", moved.NAMES[name]), name=f"raysim.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'raysim' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute)
