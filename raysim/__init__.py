"""raysim: a Ray-based, scalable simulation framework for continual federated learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysim.errors import ConfigError, RunError
    from raysim.evaluating import Evaluated, evaluate
    from raysim.messages import Ask, Delta, Post, Term
    from raysim.method import ClientHalf, Method, Plan, ServerHalf
    from raysim.result import Result, load
    from raysim.running import run
    from raysim.sweeps.running import sweep

_HOMES = {
    "Ask": "messages",
    "ClientHalf": "method",
    "ConfigError": "errors",
    "Evaluated": "evaluating",
    "Delta": "messages",
    "Method": "method",
    "Plan": "method",
    "Post": "messages",
    "Result": "result",
    "RunError": "errors",
    "ServerHalf": "method",
    "Term": "messages",
    "evaluate": "evaluating",
    "load": "result",
    "run": "running",
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

    return getattr(import_module(f"raysim.{_HOMES[name]}"), name)
