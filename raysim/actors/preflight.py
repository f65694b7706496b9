"""Find out which nodes of a joined cluster suit a run, before anything is reserved.

A Ray task on each node looks at the node's software and free space. The other code judges what these tasks return.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import ray

from raysim.actors import compat, liveness, node_capacity
from raysim.actors.workers import ask_nodes
from raysim.system.capacity import MIB, Capacity, job_memory
from raysim.system.errors import ConfigError
from raysim.system.version import VERSION

if TYPE_CHECKING:  # they import torch, which the Ray task on a node does not need
    from raysim.config import Config
    from raysim.estimate.memory import MemoryNeed

SHARED, TEMPORARY = "/dev/shm", "/tmp"  # an object store is in SHARED, or in TEMPORARY if SHARED is smaller
LEAST = {TEMPORARY: 256 * MIB, SHARED: 0}
"""The bytes that each folder needs besides the object store: for logs, and for objects that do not fit into it."""
ROOT = Path(__file__).parents[1]  # raysim's code


@dataclass(frozen=True)
class Found:
    """What a Ray task has found on its node."""

    versions: Mapping[str, str]  # package -> version
    memory: int  # available bytes
    free: Mapping[str, int]  # folder -> free bytes; a folder that does not exist is omitted
    store: str  # the folder of the object store


@dataclass(frozen=True)
class Node:
    """A node of the cluster."""

    name: str  # its address, and the beginning of its id
    has: Capacity  # what Ray knows of it
    found: Found | None  # None if the Ray task failed
    failure: str = ""  # how it failed


def differing(found: Found, here: Mapping[str, str]) -> str | None:
    """Return which versions of a node differ from those of this machine, or None."""
    there = found.versions
    return ", ".join(f"{name} {there[name]}, here {here[name]}" for name in here if there[name] != here[name]) or None


def lacking(found: Found, data: int, memory: int) -> str | None:
    """Return what a node lacks for a host, or None.

    Args:
        found: what the node has.
        data: the bytes of the data, of which the node's object store gets a copy.
        memory: the bytes of a host.
    """
    for folder, least in LEAST.items():
        needed = least + data * (folder == found.store)
        if found.free.get(folder, needed) < needed:
            return f"{folder} has {_in_mib(found.free[folder])} free, a run needs {_in_mib(needed)}"
    if found.memory < memory:
        return f"{_in_mib(found.memory)} of memory are available, a host needs {_in_mib(memory)}"
    return None


def _in_mib(nbytes: int) -> str:
    return f"{nbytes / MIB:,.0f} MiB"


class Preflight:
    """What is known of a cluster's nodes. Each node is asked once, because later the run's hosts use its memory.

    Args:
        config: the resolved config.
        need: the memory that the run takes.

    Attributes:
        nodes: the nodes that were asked, by id.
        unfit: why nodes get no host, by id.
    """

    def __init__(self, config: Config, need: MemoryNeed) -> None:
        self.nodes: dict[str, Node] = {}
        self.unfit: dict[str, str] = {}
        self._data = need.data
        self._memory = need.data + need.host_with(()) if config.resources.memory == "refuse" else 0

    def ask(self) -> list[str]:
        """Ask the nodes that were not asked yet. Return the name of each unfit node, with the reason.

        Raises:
            ConfigError: this machine's node has other software, or failed to answer. The coordinator must run on it.
        """
        new = [node for node in liveness.answer(ray.nodes) if node["Alive"] and node["NodeID"] not in self.nodes]
        stores = {node["NodeID"]: (int(node["Resources"].get("object_store_memory", 0)),) for node in new}
        answers, failures = ask_nodes(look_around, stores)
        present, here, said = liveness.answer(node_capacity.present_nodes), versions(), []
        drivers = ray.get_runtime_context().get_node_id()
        for key, address in ((node["NodeID"], node["NodeManagerAddress"]) for node in new):
            if key not in present:  # the node has left since
                continue
            node = Node(f"{address} ({key[:8]})", present[key], answers.get(key), failures.get(key, ""))
            self.nodes[key] = node
            wrong = node.failure if node.found is None else differing(node.found, here)
            if wrong and key == drivers:
                raise ConfigError(f"resources.address: the run's coordinator cannot run on {node.name}: {wrong}")
            if node.found and not wrong and node.has.cpus:  # a node without CPUs gets no hosts
                wrong = lacking(node.found, self._data, self._memory)
            if wrong:
                self.unfit[key] = wrong
                said.append(f"{node.name}: {wrong}")
        return said

    def capacity(self) -> Capacity:
        """Return the capacity of the nodes that are fit and stay, with no more memory than was available."""
        fit, leaving = [], {*liveness.answer(compat.draining_nodes)}
        for key, has in liveness.answer(node_capacity.present_nodes).items():
            found = self.nodes[key].found if key in self.nodes else None
            if found is not None and key not in self.unfit and key not in leaving:
                available = max(0, found.memory - self._data)
                fit.append(replace(has, memory=min(available, has.memory or available)))
        return node_capacity.combine(fit)

    def lines(self) -> Iterator[str]:
        """Yield a line about each node: whether it is fit, and what it has."""
        for key, node in self.nodes.items():
            verdict = f"left out ({self.unfit[key]})" if key in self.unfit else "fit"
            parts = [f"{node.name}: {verdict}", f"{node.has.cpus:g} CPUs and {node.has.gpus:g} GPUs"]
            if found := node.found:
                parts.append(f"{_in_mib(found.memory)} of memory")
                parts += [f"{_in_mib(free)} in {folder}" for folder, free in found.free.items()]
                parts += [" ".join(pair) for pair in found.versions.items()]
            yield ", ".join(parts)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Add the unfit nodes to a ConfigError, which usually says that the fit nodes do not suffice."""
        try:
            yield
        except ConfigError as error:
            if not self.unfit:
                raise
            left_out = "; ".join(f"{self.nodes[key].name}: {reason}" for key, reason in self.unfit.items())
            raise ConfigError(f"{error} (nodes that were left out: {left_out})") from error


# --- On a node


def look_around(store: int) -> Found:
    """Return what this node has.

    Args:
        store: the size of its object store in bytes, by which Ray chose the store's folder.
    """
    sizes = {}
    for folder in LEAST:
        with suppress(OSError):
            sizes[folder] = shutil.disk_usage(folder)
    shared = SHARED in sizes and sizes[SHARED].total >= store
    free = {folder: size.free for folder, size in sizes.items()}
    available = psutil.virtual_memory().available
    return Found(versions(), min(available, job_memory() or available), free, SHARED if shared else TEMPORARY)


@cache
def versions() -> dict[str, str]:
    """Return the versions of the software that a run computes with.

    raysim's version includes a hash of its code, because two checkouts of one version may differ. Nodes may differ in
    their build of one torch version, such as for CPUs or for CUDA: the build is ignored.
    """
    code = hashlib.sha256()
    for path in sorted(ROOT.rglob("*.py")):
        code.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return {
        "raysim": f"{VERSION} (code {code.hexdigest()[:8]})",
        "Python": platform.python_version().rpartition(".")[0],
        "torch": _version("torch").partition("+")[0],
        "Ray": _version("ray"),
    }


def _version(package: str) -> str:
    with suppress(PackageNotFoundError):
        return version(package)
    return "not installed"
