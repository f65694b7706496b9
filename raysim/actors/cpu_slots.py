"""CPU slots of hosts that share CPUs: no more hosts of a node compute at a time than it has CPUs for.

Hosts that wait leave the caches to those that compute: ten hosts on two cores took a sixth less CPU time.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence


class CpuSlot:
    """The CPU slots of a node as one of its hosts sees them: inside `with`, the host has one of them.

    A slot is a byte in a named pipe. The kernel serves the hosts that wait in their order. A host that is killed takes
    its slot with it; the run, which has lost a host, starts new hosts with a new pipe.

    Args:
        path: where the pipe is.
    """

    def __init__(self, path: str) -> None:
        self._pipe = os.open(path, os.O_RDWR)

    def __enter__(self) -> None:
        os.read(self._pipe, 1)

    def __exit__(self, *raised: object) -> None:
        os.write(self._pipe, b".")


def make_slots(count: int) -> tuple[str, CpuSlot]:
    """Make the slots of this node; return where the other hosts find them, and this host's view of them.

    Once all hosts have opened them, `hide_slots` deletes the pipe's name: nothing is left when the last host ends.
    """
    path = os.path.join(tempfile.mkdtemp(prefix="raysim-slots-"), "slots")
    os.mkfifo(path, 0o600)
    slot = CpuSlot(path)
    for _ in range(count):
        slot.__exit__()
    return path, slot


def hide_slots(path: str) -> None:
    """Delete the name of the pipe."""
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)


def count_slots(nodes: Sequence[str], cpus: float) -> Mapping[str, int]:
    """Return how many hosts of each node may compute at a time, given each host's node and its share of its CPUs."""
    return {node: math.ceil(round(cpus * hosts, 4)) for node, hosts in Counter(nodes).items()}


def concurrent_hosts(nodes: Sequence[str], slots: Mapping[str, int] | None) -> list[int]:
    """Return the first hosts of each node, as many as may compute at a time; all hosts where there are no slots."""
    return [h for h, node in enumerate(nodes) if slots is None or nodes[:h].count(node) < slots[node]]
