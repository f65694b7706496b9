"""The CPUs, GPUs and memory of a cluster or a machine."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MIB = 2**20
GIB = 2**30
MOST_OF_MEMORY = 0.8  # the fraction of the memory that a run may use
MOST_FOR_DATA = 0.5  # the fraction for the driver's arrays, as the object store holds a second copy
CAN_FORK = sys.platform == "linux"  # macOS's frameworks do not work in a forked process
GROUP = Path("/sys/fs/cgroup")  # Linux's limits for this process, for example in a container


@dataclass(frozen=True)
class Capacity:
    """The resources of a cluster, all nodes together, or of one node."""

    cpus: float
    gpus: float
    memory: int | None
    """In bytes; None if unknown."""
    custom: Mapping[str, float] = field(default_factory=dict)
    """The custom resources by name."""
    nodes: Sequence[Capacity] = ()
    """The capacity of each node; empty for a cluster of one node."""

    def room(self, cpus: float, gpus: float, custom: Mapping[str, float]) -> float:
        """Return the number of actors with these requirements that fit. An actor is on a single node."""
        if self.nodes:
            return sum(node.room(cpus, gpus, custom) for node in self.nodes)
        fits: list[float] = [fit(gpus, self.gpus)] if gpus else []
        demands = [(cpus, self.cpus), *((share, self.custom.get(name, 0.0)) for name, share in custom.items())]
        return min([*fits, *(int(available / share + 1e-9) for share, available in demands if share)], default=math.inf)


def this_machine() -> Capacity:
    """Return the part of this machine that this process may use, which is the capacity of a local cluster."""
    import torch  # here, as it takes seconds

    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = (GROUP / "memory.max", GROUP / "memory" / "memory.limit_in_bytes")  # control groups, versions 2 and 1
    memory = int(min(psutil.virtual_memory().total, *map(_number, limits)))
    return Capacity(max(1, int(min(cpus, _quota()))), torch.cuda.device_count(), memory)


def fit(share: float, total: float) -> int:
    """Return the number of shares that fit. A share below 1 is on a single GPU."""
    return int(total) * int(1 / share + 1e-9) if share < 1 else int(total / share + 1e-9)


def _quota() -> float:
    """Return the number of CPUs that this process's control group (version 2 or 1) allows."""
    with suppress(OSError, ValueError):
        quota, period = (GROUP / "cpu.max").read_text().split()
        return math.inf if quota == "max" else float(quota) / float(period)
    quota_1, period_1 = (_number(GROUP / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return quota_1 / period_1 if 0 < quota_1 < math.inf and period_1 < math.inf else math.inf


def _number(path: Path) -> float:
    """Return the number in a file, or infinity if there is none."""
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return math.inf
