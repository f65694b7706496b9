"""Turns of hosts that share CPUs: no more of a node's hosts compute at a time than it has CPUs for."""

import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import Generic, TypeVar

Call = TypeVar("Call")


class Turns(Generic[Call]):
    """Queue of calls that wait, in order, for their host to be idle and for a CPU of its node.

    Hosts that wait leave the caches to those that compute: ten hosts on two cores took a sixth less CPU time.
    A second call to a busy host would hold a turn and only wait there, while a CPU is idle.

    Args:
        nodes: the node of each host.
        cpus: each host's share of its node's CPUs; None if hosts have CPUs of their own, and then no call waits.

    `abreast` are the first hosts of each node, as many as may compute at a time.
    """

    def __init__(self, nodes: Sequence[str], cpus: float | None) -> None:
        hosts = Counter(nodes)
        self._nodes = nodes
        self._free = {n: math.inf if cpus is None else math.ceil(round(cpus * hosts[n], 4)) for n in hosts}
        numbers = [nodes[:host].count(node) for host, node in enumerate(nodes)]
        self.abreast = [h for h, node in enumerate(nodes) if numbers[h] < self._free[node]]
        self._shared = cpus is not None
        self._busy: set[int] = set()
        self._waiting: dict[str, deque[tuple[int, Call]]] = {node: deque() for node in hosts}

    def wait(self, host: int, call: Call) -> None:
        """Append a call to a host to the queue."""
        self._waiting[self._nodes[host]].append((host, call))

    def begin(self) -> list[Call]:
        """Remove the calls whose turn it is from the queue, and return them."""
        begun = []
        for node, waiting in self._waiting.items():
            later = []
            while waiting and self._free[node] > 0:
                host, call = waiting.popleft()
                if host in self._busy:
                    later.append((host, call))
                    continue
                if self._shared:
                    self._busy.add(host)
                self._free[node] -= 1
                begun.append(call)
            waiting.extendleft(reversed(later))
        return begun

    def end(self, host: int) -> None:
        """Note that a call to a host has ended."""
        self._busy.discard(host)
        self._free[self._nodes[host]] += 1
