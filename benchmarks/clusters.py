"""Temporary Ray clusters of several nodes on this machine's loopback interface, for the benchmarks."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from raysim.actors import compat

STORE = 2**30  # bytes of a node's object store; by default Ray's test clusters have 150 MiB and spill above that


class Nodes:
    """A cluster with nodes that can be added and removed, except for the head.

    Args:
        cpus: CPUs of the head node.
    """

    def __init__(self, cpus: int) -> None:
        from ray.cluster_utils import Cluster  # after raysim.actors, which configures Ray's output

        with compat.rays_address(loopback=True):
            self._cluster = Cluster(initialize_head=True, head_node_args={**_node(cpus), "include_dashboard": False})
        self.address = str(self._cluster.address)

    def add(self, cpus: int) -> Any:
        with compat.rays_address(loopback=True):
            return self._cluster.add_node(**_node(cpus))

    def lose(self, node: Any) -> None:
        """Remove a node without warning it, and its actors, which otherwise compute for a second or two yet."""
        there = [
            psutil.Process(actor["Pid"])
            for actor in compat.alive_actors()
            if actor["Address"]["NodeID"] == node.node_id
        ]
        self._cluster.remove_node(node, allow_graceful=False)
        for process in there:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def with_hosts(self) -> set[str]:
        """Return the ids of the nodes where resources are reserved, as they are for hosts."""
        from ray.util.placement_group import placement_group_table

        groups = [group for group in placement_group_table().values() if group["state"] == "CREATED"]
        return {node for group in groups for node in group["bundles_to_node_id"].values()}

    def shutdown(self) -> None:
        self._cluster.shutdown()


def _node(cpus: int) -> dict[str, Any]:
    return {"num_cpus": cpus, "node_ip_address": compat.LOOPBACK, "object_store_memory": STORE}


@contextmanager
def cluster(cpus: int) -> Iterator[Nodes]:
    """Start a cluster with a head node that has this many CPUs; stop it at the end."""
    before = os.environ.get("RAY_TMPDIR")
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder:  # a short path, as it contains sockets
        os.environ["RAY_TMPDIR"] = folder
        try:
            nodes = Nodes(cpus)
            try:
                yield nodes
            finally:
                nodes.shutdown()
        finally:
            del os.environ["RAY_TMPDIR"]
            if before is not None:
                os.environ["RAY_TMPDIR"] = before
