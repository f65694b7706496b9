"""Report hosts that do not answer: how many, and on which nodes."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray

from raysim.actors import liveness

FIRST, AGAIN = 30, 60  # seconds until the first report, and until the next one
USUAL = 5  # a call is late if it takes this many times the longest one before
ADVICE = (
    "see whether its processes are stopped or starved (top there, `ray status`), and whether a firewall holds back the "
    "ports of Ray's workers (docs/cluster.md, Ports); Ctrl-C twice leaves"
)


class Stalls:
    """Hosts that a run waits for.

    Args:
        hosts: the host actors.
        nodes: the id of each host's node.
    """

    def __init__(self, hosts: Sequence[Any], nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self._ready = [host.ready.remote() for host in hosts]
        self.heard()

    def heard(self) -> None:
        """Start the wait again, as the run has reported something."""
        self._next = time.monotonic() + FIRST

    def stage(self) -> str:
        """Return how many hosts have started, in a few words."""
        return f"hosts: {len(self._nodes) - len(self._starting())} of {len(self._nodes)} ready"

    def line(self, coordinator: Any = None) -> str | None:
        """Return the line to show now, or None.

        Args:
            coordinator: the actor, once the hosts have started.
        """
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + AGAIN
        if coordinator is None:
            late, what, answered = self._starting(), "start and answer", []
        else:
            answered, what = liveness.wait_a_second([coordinator.late_hosts.remote()]), "answer"
            late = ray.get(answered[0]) if answered else []
        if not late and not answered:
            return "waiting for the coordinator, on this machine, which does not answer; see `ray status` and top"
        where = {node["NodeID"]: f"{node['NodeManagerAddress']} {node['NodeID'][:8]}" for node in ray.nodes()}
        nodes = Counter(self._nodes[host] for host in late)
        listed = ", ".join(f"{count} on the node {where.get(node, node[:8])}" for node, count in nodes.items())
        return f"waiting for {len(late)} of {len(self._nodes)} hosts to {what}, {listed}: {ADVICE}" if late else None

    def _starting(self) -> list[int]:
        _, waiting = ray.wait(self._ready, num_returns=len(self._ready), timeout=0)
        return [host for host, call in enumerate(self._ready) if call in waiting]


def late_calls(began: dict[int, float], longest: float) -> list[int]:
    """Return the hosts whose call takes much longer than any call before.

    Args:
        began: when each host that has not answered was called (time.monotonic).
        longest: the seconds that the longest call has taken so far.
    """
    limit = time.monotonic() - max(FIRST, USUAL * longest)
    return sorted(host for host, start in began.items() if start < limit)
