"""Hosts that start and do not answer: which ones, on which nodes, and what to look at, said again and again."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray

FIRST, AGAIN = 30, 60  # seconds until something is said, and until it is said again
MOMENT = 5  # seconds in which a host that can answer does
LOOK = (
    "see whether its processes are stopped or starved (top there, `ray status`), and whether a firewall holds back the "
    "ports of Ray's workers (docs/cluster.md, Ports); Ctrl-C twice leaves"
)


class Patience:
    """What a run waits for until its hosts have started.

    Args:
        hosts: the host actors.
        nodes: the id of each host's node.
    """

    def __init__(self, hosts: Sequence[Any], nodes: Sequence[str]) -> None:
        self._hosts, self._nodes = hosts, nodes
        self._asked: list[Any] = []
        self._next = time.monotonic() + FIRST

    def line(self) -> str | None:
        """Return the line that is to be said now, or None if it is not time for one."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + AGAIN
        self._asked = self._asked or [host.ready.remote() for host in self._hosts]
        answered, _ = ray.wait(self._asked, num_returns=len(self._asked), timeout=MOMENT)
        late = Counter(node for node, call in zip(self._nodes, self._asked, strict=True) if call not in answered)
        if not late:
            return "waiting for the coordinator, on this machine, as all hosts have answered; see `ray status` and top"
        where = {node["NodeID"]: f"{node['NodeManagerAddress']} {node['NodeID'][:8]}" for node in ray.nodes()}
        listed = ", ".join(f"{count} on the node {where.get(node, node[:8])}" for node, count in late.items())
        return f"waiting for {sum(late.values())} of {len(self._hosts)} hosts to start and answer, {listed}: {LOOK}"
