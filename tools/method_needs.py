"""What a method needs of the clients and the server, from its declarations. Tables of several pages show it."""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import cache

from raysim.api import Method
from raysim.api.setting import Need
from raysim.config.lookup import resolve
from raysim.engine.compatibility import needs_of


def stores_samples(method: Method) -> bool:
    """Return whether clients keep samples of earlier tasks."""
    return method.memory is not None


def find_boundaries(method: Method, needs: Set[Need]) -> str:
    """Return who must know when a task ends: none, each client, or the server. Some memories are filled then."""
    if "server_boundaries" in needs:
        return "server"
    fills = () if method.memory is None else method.memory.fills
    return "clients" if "boundaries" in needs or fills == ("boundary",) else "none"


@cache
def _read_method(name: str) -> Method:
    method: Method = resolve("method", name)()
    return method


def any_stores_samples(names: Iterable[str]) -> bool:
    """Return whether clients keep samples for one of these methods."""
    return any(stores_samples(_read_method(name)) for name in names)


def join_boundaries(names: Iterable[str]) -> str:
    """Return who must know when a task ends, for methods that are used together."""
    found = {find_boundaries(method, needs_of(method)) for method in map(_read_method, names)}
    return next((who for who in ("server", "clients") if who in found), "none")
