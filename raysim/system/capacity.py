"""The CPUs, GPUs and memory of a cluster or a machine, and the limits of a job on it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from raysim.system.errors import ConfigError

MIB = 2**20
GIB = 2**30
MOST_OF_MEMORY = 0.8  # the fraction of the memory that a run may use
MOST_FOR_DATA = 0.5  # the fraction for the driver's arrays, as the object store holds a second copy
CAN_FORK = sys.platform == "linux"  # macOS's frameworks do not work in a forked process
GROUPS, OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # Linux's control groups, and this process's
# Slurm's variables: MiB for the job on this node, or for each of what the second variable counts. 0 is all memory.
SLURM = {
    "SLURM_MEM_PER_NODE": None,
    "SLURM_MEM_PER_CPU": "SLURM_CPUS_ON_NODE",
    "SLURM_MEM_PER_GPU": "SLURM_GPUS_ON_NODE",
}


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
    has_driver: bool = False
    """Whether this is the driver's node of a cluster, which has the coordinator, too."""

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
    allowed = min([cpus, _variable("SLURM_CPUS_ON_NODE") or math.inf, *map(_quota, _own_groups("cpu"))])
    memory = job_memory() or psutil.virtual_memory().total
    return Capacity(max(1, int(allowed)), torch.cuda.device_count(), memory)


def fits_into_memory(nbytes: int) -> bool:
    """Return whether arrays take at most half of this machine's memory."""
    return nbytes <= MOST_FOR_DATA * (this_machine().memory or math.inf)


def require_memory(nbytes: int, key: str, found: object) -> None:
    """Refuse arrays that take more than half of this machine's memory.

    Args:
        nbytes: the size of the arrays.
        key: the config key that asks for them.
        found: the value of that key.

    Raises:
        ConfigError: the arrays are too large.
    """
    if not fits_into_memory(nbytes):
        most = MOST_FOR_DATA * (this_machine().memory or math.inf)
        raise ConfigError(
            f"{key}: found {found}, which takes {nbytes / GIB:,.1f} GiB, allowed: what fits into {most / GIB:.1f} "
            "GiB, half of this machine's memory"
        )


def fit(share: float, total: float) -> int:
    """Return the number of shares that fit. A share below 1 is on a single GPU, of which a part may be left."""
    if share >= 1:
        return int(total / share + 1e-9)
    return int(total) * int(1 / share + 1e-9) + int(total % 1 / share + 1e-9)


def turns(share: float, hosts: int) -> int:
    """Return how many hosts with this share of a CPU each may compute at a time; Ray counts ten-thousandths."""
    return math.ceil(round(share * hosts, 4))


# --- The limits of this process's job, such as one of Slurm's or a container


def job_memory() -> int | None:
    """Return the bytes that this process and the others of its job may use, or None if all of the machine's."""
    slurms = [MIB * _variable(amount) * (_variable(each) if each else 1) for amount, each in SLURM.items()]
    least = min([*filter(None, slurms), *map(_memory_limit, _own_groups("memory"))], default=math.inf)
    return int(least) if least < psutil.virtual_memory().total else None


def describe_ignored() -> list[str]:
    """Return a line for each limit of Slurm's on memory that is set but cannot be used."""
    lines = []
    for amount, each in SLURM.items():
        if not os.environ.get(amount):
            continue
        wrong = [name for name in (amount, each) if name and not os.environ.get(name, "").isdecimal()]
        if wrong:
            found = ", ".join(f"{name} is {os.environ.get(name)!r}" for name in wrong)
            lines.append(f"the memory limit of {amount}={os.environ[amount]} is not used: {found}, not a whole number")
    return lines


def count_killed() -> int:
    """Return a number that grows whenever the kernel kills a process of this job for lack of memory.

    A process in a group of version 1 next to this process's group is not counted.
    """
    groups = [*_own_groups("memory")]
    limits = [*map(_memory_limit, groups)]
    # The group with the least limit is the job's, as version 2 counts the groups below it, too.
    jobs = max((place for place, limit in enumerate(limits) if limit == min(limits) < math.inf), default=0)
    return sum(map(_killed, groups[: jobs + 1]))


def _own_groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control groups of either version, the innermost first."""
    with suppress(OSError):
        for line in OWN_GROUPS.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(",") or not controllers:  # version 2 has no names of controllers
                top = GROUPS / controller if controllers else GROUPS
                # A container may see its own group as the topmost, and others at `..`
                names = [name for name in path.split("/") if name not in ("", "..")]
                yield from (top.joinpath(*names[:count]) for count in range(len(names), -1, -1))


def _memory_limit(group: Path) -> float:
    """Return the bytes that a control group (version 2 or 1) allows."""
    limit = min(_number(group / "memory.max"), _number(group / "memory.limit_in_bytes"))
    return limit if limit < psutil.virtual_memory().total else math.inf  # version 1 has a number for no limit


def _killed(group: Path) -> int:
    """Return how many processes of a control group (version 2 or 1) the kernel has killed for lack of memory."""
    for name in ("memory.events", "memory.oom_control"):
        with suppress(OSError):
            counts = dict(line.split() for line in (group / name).read_text().splitlines())
            return int(counts.get("oom_kill", 0))
    return 0


def _quota(group: Path) -> float:
    """Return the number of CPUs that a control group (version 2 or 1) allows."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        return math.inf if quota == "max" else float(quota) / float(period)
    quota_1, period_1 = (_number(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    return quota_1 / period_1 if 0 < quota_1 < math.inf and period_1 < math.inf else math.inf


def _number(path: Path) -> float:
    """Return the number in a file, or infinity if there is none."""
    with suppress(OSError, ValueError):
        return float(path.read_text())
    return math.inf


def _variable(name: str) -> int:
    """Return the number in an environment variable, or 0 if there is none."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0
