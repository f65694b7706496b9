"""raysim: a Ray-based, scalable simulation framework for continual federated learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysim.api.messages import Ask, Delta, Post, Term
    from raysim.api.method import ClientHalf, Method, Plan, ServerHalf
    from raysim.launch.evaluate import Evaluated, evaluate
    from raysim.launch.run import run
    from raysim.records.result import Result
    from raysim.records.result import load_result as load
    from raysim.sweeps.running import sweep
    from raysim.system.errors import ConfigError, RunError

_HOMES = {
    "Ask": "api.messages",
    "ClientHalf": "api.method",
    "ConfigError": "system.errors",
    "Evaluated": "launch.evaluate",
    "Delta": "api.messages",
    "Method": "api.method",
    "Plan": "api.method",
    "Post": "api.messages",
    "Result": "records.result",
    "RunError": "system.errors",
    "ServerHalf": "api.method",
    "Term": "api.messages",
    "evaluate": "launch.evaluate",
    "load": "records.result:load_result",
    "run": "launch.run",
    "sweep": "sweeps.running",
}

__all__ = [
    "Ask",
    "ClientHalf",
    "ConfigError",
    "Delta",
    "Evaluated",
    "Method",
    "Plan",
    "Post",
    "Result",
    "RunError",
    "ServerHalf",
    "Term",
    "evaluate",
    "load",
    "run",
    "sweep",
]


def __getattr__(name: str) -> Any:
    # torch takes seconds to import: a wrong command line must not wait for it
    if name not in _HOMES:
        raise AttributeError(f"module 'raysim' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(f"raysim.{module}"), attribute or name)
