"""Report a run that has stalled: which hosts have not answered, and on which nodes."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray

from raysim.actors import liveness
from raysim.engine.events import Event, Stage

FIRST, AGAIN = 30, 60  # seconds until the first report, and until the next one
USUAL = 5  # a silence is unusual if it is this many times as long as the longest one before
ADVICE = (
    "run `top` on these nodes, and `ray status`, to see whether processes are stopped or starved; check that no "
    "firewall blocks the ports of Ray's workers (docs/cluster.md, Ports); Ctrl-C twice leaves"
)


class Stalls:
    """The silences of a run.

    Args:
        nodes: the id of each host's node.
    """

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self._longest = 0.0  # the seconds of the longest silence before this one, without those of the start
        self._silent_since = time.monotonic()
        self._next = self._silent_since + FIRST
        self._starting = True

    def heard(self, event: Event) -> None:
        """End the silence, as the run has reported an event."""
        now = time.monotonic()
        if not self._starting:
            self._longest = max(self._longest, now - self._silent_since)
        self._silent_since, self._next = now, now + max(FIRST, USUAL * self._longest)
        self._starting = isinstance(event, Stage)

    def line(self, coordinator: Any) -> str | None:
        """Return the line to show now, or None. `coordinator` is the actor."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + AGAIN
        if not (answered := liveness.wait_a_second([coordinator.unanswered.remote()])):
            return "waiting for the coordinator, on this machine, which does not answer; see `ray status` and top"
        if not (late := ray.get(answered[0])):
            return None
        addresses = {node["NodeID"]: f"{node['NodeManagerAddress']} {node['NodeID'][:8]}" for node in ray.nodes()}
        nodes = Counter(self._nodes[host] for host in late)
        listed = ", ".join(f"{count} on the node {addresses.get(node, node[:8])}" for node, count in nodes.items())
        return f"waiting for {len(late)} of {len(self._nodes)} hosts to answer, {listed}: {ADVICE}"
