"""Hosts that do not answer, at the start or later: which ones, where, and what to look at, said again and again."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil
import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysim.actors.placing import this_node

FIRST, AGAIN = 30, 60  # seconds until something is said, and until it is said again
MOMENT = 5  # seconds in which a host that can answer does
LOOKING = 20  # seconds in which a node says how its processes are, having started one of Ray's to look
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
LOOK = (
    "see whether its processes are stopped or starved (top there, `ray status`), and whether a firewall holds back the "
    "ports of Ray's workers (docs/cluster.md, Ports); Ctrl-C twice leaves"
)


class Patience:
    """What a run waits for.

    Args:
        hosts: the host actors.
        nodes: the id of each host's node.
    """

    def __init__(self, hosts: Sequence[Any], nodes: Sequence[str]) -> None:
        self._hosts, self._nodes = hosts, nodes
        self._asked: list[Any] = []
        self._look: Any = None
        self.heard()

    def heard(self) -> None:
        """Begin to wait anew, as something was heard of the run."""
        self._next, self._look = time.monotonic() + FIRST, None

    def stage(self) -> str:
        """Return how far the hosts' start is, in a few words."""
        self._asked = self._asked or [host.ready.remote() for host in self._hosts]
        answered, _ = ray.wait(self._asked, num_returns=len(self._asked), timeout=0)
        return f"hosts: {len(answered)} of {len(self._hosts)} ready"

    def line(self, coordinator: Any = None) -> str | None:
        """Return the line that is to be said now, or None; `coordinator` is the actor, once the hosts have started.

        Rounds may take long, so then only those hosts are named that do not compute.
        """
        if time.monotonic() < self._next:
            return None
        said = self._at_the_start() if coordinator is None else self._later(coordinator)
        if said is not None:
            self._next = time.monotonic() + AGAIN
        return said or None

    def _at_the_start(self) -> str:
        self._asked = self._asked or [host.ready.remote() for host in self._hosts]
        answered, _ = ray.wait(self._asked, num_returns=len(self._asked), timeout=MOMENT)
        late = [host for host, call in enumerate(self._asked) if call not in answered]
        if not late:
            return "waiting for the coordinator, on this machine, as all hosts have answered; see `ray status` and top"
        return self._told(late, "start and answer")

    def _later(self, coordinator: Any) -> str | None:
        """Return None while it is not known yet, and nothing if all is well."""
        self._look = self._look or coordinator.silent.remote()
        answered, _ = ray.wait([self._look], timeout=0)
        if not answered and time.monotonic() < self._next + LOOKING + MOMENT:
            return None
        silent = ray.get(self._look) if answered else []
        self._look = None
        if not answered:
            return "waiting for the coordinator, on this machine, which does not answer; see `ray status` and top"
        return self._told(silent, "go on") if silent else ""

    def _told(self, late: Sequence[int], what: str) -> str:
        where = {node["NodeID"]: f"{node['NodeManagerAddress']} {node['NodeID'][:8]}" for node in ray.nodes()}
        nodes = Counter(self._nodes[host] for host in late)
        listed = ", ".join(f"{count} on the node {where.get(node, node[:8])}" for node, count in nodes.items())
        return f"waiting for {len(late)} of {len(self._hosts)} hosts to {what}, {listed}: {LOOK}"


def silent(awaited: Sequence[tuple[int, str, int]]) -> list[int]:
    """Return which hosts do not compute: their process is stopped, or their node does not say that it is not.

    Args:
        awaited: number, node and process of hosts.
    """
    there: dict[str, list[int]] = {}
    for _, node, pid in awaited:
        there.setdefault(node, []).append(pid)
    task: Any = ray.remote(stopped)
    here = this_node()
    asked = {
        node: task.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(pids)
        for node, pids in there.items()
        if node != here
    }
    if asked:
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=LOOKING)
    still = {here: stopped(there.get(here, []))}
    for node, answer in asked.items():
        still[node] = there[node]
        with suppress(RayError):  # it did not answer in time, or the task failed
            still[node] = ray.get(answer, timeout=0)
    return [host for host, node, pid in awaited if pid in still[node]]


def stopped(pids: Sequence[int]) -> list[int]:
    """Return which of these processes, on this machine, are stopped."""
    found = []
    for pid in pids:
        with suppress(psutil.Error):  # it has ended, which Ray says
            found += [pid] * (psutil.Process(pid).status() in STOPPED)
    return found
