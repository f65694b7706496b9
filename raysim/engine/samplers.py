"""Samplers: functions that choose the clients of a round.

A sampler receives the server, the number of clients to choose, and a random generator. It returns distinct ids from
`server.present`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from raysim.api.server import Server

SAMPLERS: Mapping[str, str] = {
    "uniform": "raysim.engine.samplers:uniform",
    "by_size": "raysim.engine.samplers:by_size",
    "round_robin": "raysim.engine.samplers:round_robin",
}


def uniform(server: Server, count: int, draws: np.random.Generator) -> Sequence[int]:
    """Uniformly, without replacement."""
    present = server.present
    return [present[k] for k in draws.choice(len(present), size=count, replace=False)]


def by_size(server: Server, count: int, draws: np.random.Generator) -> Sequence[int]:
    """Without replacement, with probability proportional to each client's current number of samples."""
    present = server.present
    sizes = [server.size(k) for k in present]
    total = sum(sizes)
    chosen = draws.choice(len(present), size=count, replace=False, p=[size / total for size in sizes])
    return [present[k] for k in chosen]


def round_robin(server: Server, count: int, draws: np.random.Generator) -> Sequence[int]:
    """In turn, in the order of the ids."""
    present = server.present
    first = (server.round - 1) * count
    return [present[(first + i) % len(present)] for i in range(count)]
