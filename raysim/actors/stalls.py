"""Report a run that has stalled: which hosts have not answered, and on which nodes. End a run that does not start."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray

from raysim.actors import liveness
from raysim.engine.events import Event, StartStep
from raysim.system.errors import Lost, RunError

FIRST, AGAIN = 30, 60  # seconds until the first report, and until the next one
USUAL = 5  # a silence is unusual if it is this many times as long as the longest one before
ADVICE = (
    "run `top` on these nodes, and `ray status`, to see whether processes are suspended or starved; check that no "
    "firewall blocks the ports of Ray's workers (docs/operators.md, Ports)"
)


class Stalls:
    """The silences of a run.

    Args:
        nodes: the id of each host's node.
        patience: the seconds after which a run that is still starting, and says nothing, is ended. Once the run
            computes: the seconds after which a coordinator that does not answer counts as lost.
    """

    def __init__(self, nodes: Sequence[str], patience: float) -> None:
        self._nodes, self._patience = nodes, patience
        self._misses = 0  # the number of times in a row that the coordinator did not answer
        self._longest = 0.0  # the seconds of the longest earlier silence after the start
        self._silent_since = time.monotonic()
        self._next = self._silent_since + FIRST
        self._starting = True

    def heard(self, event: Event) -> None:
        """End the silence: the run has reported an event."""
        now = time.monotonic()
        if not self._starting:
            self._longest = max(self._longest, now - self._silent_since)
        self._silent_since, self._next = now, now + max(FIRST, USUAL * self._longest)
        self._starting, self._misses = isinstance(event, StartStep) and not event.computes, 0

    def line(self, coordinator: Any) -> str | None:
        """Return the line to show now, or None. `coordinator` is the actor.

        Raises:
            RunError: the run does not start.
            Lost: the coordinator does not answer.
        """
        now = time.monotonic()
        over = self._starting and now - self._silent_since >= self._patience
        if liveness.CURRENT.silent or (now < self._next and not over):  # a silent cluster blocks calls of Ray
            return None
        self._next = now + AGAIN
        answered = liveness.wait_a_second([coordinator.unanswered.remote()])
        self._misses = 0 if answered else self._misses + 1
        if not answered:
            missing = "the coordinator, on this machine, to answer: see `ray status` and `top`"
        elif late := ray.get(answered[0]):
            missing = f"{len(late)} of {len(self._nodes)} hosts to answer, {self._places(late)}: {ADVICE}"
        elif over:
            missing = "the hosts, which restore their clients"
        else:
            return None
        limit = f"{self._patience:g} s (resources.patience)"
        if over:
            raise RunError(f"the run has not started: it waited {limit} for {missing}")
        if not self._starting and self._misses * AGAIN > self._patience:
            raise Lost("the coordinator", f"it has not answered for {limit}")
        return f"waiting for {missing}; Ctrl-C twice leaves"

    def _places(self, hosts: Sequence[int]) -> str:
        """Return the number of hosts on each of their nodes, as text."""
        addresses = {node["NodeID"]: f"{node['NodeManagerAddress']} {node['NodeID'][:8]}" for node in ray.nodes()}
        nodes = Counter(self._nodes[host] for host in hosts)
        return ", ".join(f"{count} on the node {addresses.get(node, node[:8])}" for node, count in nodes.items())
