"""Detection of nodes that are about to leave the cluster, so that a checkpoint is written first."""

import time
from collections.abc import Iterable

import ray

from raysim.actors import compat

EVERY = 1  # seconds between two questions to Ray


class Draining:
    """The nodes of a run that are drained, or that have received a notice of preemption.

    Args:
        nodes: the ids of the run's nodes; empty if nobody can drain them.
    """

    def __init__(self, nodes: Iterable[str]) -> None:
        self._staying = {*nodes}
        self._next = time.monotonic()

    def notice(self) -> str | None:
        """Return a line about nodes that are about to leave, once for each node."""
        now = time.monotonic()
        if not self._staying or now < self._next:
            return None
        self._next = now + EVERY
        leaving = self._staying & {*compat.draining_nodes()}
        if not leaving:
            return None
        self._staying -= leaving
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        listed = ", ".join(f"{addresses.get(node, '')} ({node[:8]})".lstrip() for node in sorted(leaving))
        return f"about to leave the cluster: {listed}; a checkpoint follows this round"
