"""raysim: a Ray-based, scalable simulation framework for continual federated learning.

Functions to run, sweep and report are here. The interface of methods is in raysim.api.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from raysim.system.importing import drawing
from raysim.system.version import VERSION

if TYPE_CHECKING:
    from raysim.evaluation.finished_run import Evaluated, evaluate
    from raysim.evaluation.saved_model import save_adapters, save_pretrained
    from raysim.launch.estimated import Estimate
    from raysim.launch.estimated import check_run as check
    from raysim.launch.run import run
    from raysim.records.result import Result
    from raysim.records.result import load_result as load
    from raysim.reports.frame import frame
    from raysim.reports.stream.picture import StreamPicture, draw_stream
    from raysim.reports.write import figures
    from raysim.reports.write import write_report as report
    from raysim.sweeps.sweep import sweep
    from raysim.system.errors import ConfigError, RunError

__version__ = VERSION

__all__ = [
    "ConfigError",
    "Estimate",
    "Evaluated",
    "Result",
    "RunError",
    "StreamPicture",
    "check",
    "draw_stream",
    "evaluate",
    "figures",
    "frame",
    "load",
    "report",
    "run",
    "save_adapters",
    "save_pretrained",
    "sweep",
]

_HOMES = {
    "ConfigError": "raysim.system.errors:ConfigError",
    "Estimate": "raysim.launch.estimated:Estimate",
    "Evaluated": "raysim.evaluation.finished_run:Evaluated",
    "Result": "raysim.records.result:Result",
    "RunError": "raysim.system.errors:RunError",
    "StreamPicture": "raysim.reports.stream.picture:StreamPicture",
    "check": "raysim.launch.estimated:check_run",
    "draw_stream": "raysim.reports.stream.picture:draw_stream",
    "evaluate": "raysim.evaluation.finished_run:evaluate",
    "figures": "raysim.reports.write:figures",
    "frame": "raysim.reports.frame:frame",
    "load": "raysim.records.result:load_result",
    "report": "raysim.reports.write:write_report",
    "run": "raysim.launch.run:run",
    "save_adapters": "raysim.evaluation.saved_model:save_adapters",
    "save_pretrained": "raysim.evaluation.saved_model:save_pretrained",
    "sweep": "raysim.sweeps.sweep:sweep",
}


def __getattr__(name: str) -> Any:
    # torch takes seconds to import: a wrong command line must not wait for it
    if name not in _HOMES:
        raise AttributeError(f"module 'raysim' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    with drawing():
        return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__version__"]
