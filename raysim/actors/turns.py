"""Turns of hosts that share CPUs: no more of a node's hosts compute at a time than it has CPUs for.

Hosts that wait leave the caches to those that compute: ten hosts on two cores took a sixth less CPU time.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence


class Turns:
    """The turns of a node, which its hosts share, as one of them sees them: inside `with`, it has one.

    A turn is a byte in a pipe without a name, so nothing is left of it when the last host ends. A host that is killed
    takes its turn with it, and the run, which has lost a host, goes on with new hosts and a new pipe.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def __enter__(self) -> None:
        os.read(self._pipe, 1)  # the kernel serves those who wait in their order

    def __exit__(self, *raised: object) -> None:
        os.write(self._pipe, b".")


def open_turns(many: int) -> str:
    """Make the turns of this node, which last as long as this process; return where its other hosts find them."""
    place, write = os.pipe()
    os.write(write, b"." * many)
    os.close(write)
    return f"/proc/{os.getpid()}/fd/{place}"


def take_turns(place: str) -> Turns:
    """Return the turns at a place, of a process of this user's on this node. Raises OSError: there are none."""
    return Turns(os.open(place, os.O_RDWR))


def count_turns(nodes: Sequence[str], cpus: float) -> Mapping[str, int]:
    """Return how many hosts of each node may compute at a time, given each host's node and its share of its CPUs."""
    return {node: math.ceil(round(cpus * hosts, 4)) for node, hosts in Counter(nodes).items()}


def abreast(nodes: Sequence[str], turns: Mapping[str, int] | None) -> list[int]:
    """Return the first hosts of each node, as many as may compute at a time; all where they take no turns."""
    return [h for h, node in enumerate(nodes) if turns is None or nodes[:h].count(node) < turns[node]]
