"""The capacity of this process's cluster, and of each of its nodes."""

from collections import Counter
from collections.abc import Iterable, Mapping

import ray

from raysim.config.schema import RAYS_OWN
from raysim.system.capacity import Capacity


def present() -> Capacity:
    """Return the current capacity of this process's cluster. Its nodes may change."""
    return combine(present_nodes().values())


def present_nodes() -> dict[str, Capacity]:
    """Return the capacity of each node that is alive, by its id."""
    here = ray.get_runtime_context().get_node_id()
    return {node["NodeID"]: _node(node["Resources"], node["NodeID"] == here) for node in ray.nodes() if node["Alive"]}


def combine(nodes: Iterable[Capacity]) -> Capacity:
    """Return the capacity of a cluster with these nodes."""
    each, custom = [*nodes], Counter[str]()
    for node in each:
        custom.update(node.custom)
    return Capacity(sum(node.cpus for node in each), sum(node.gpus for node in each), None, dict(custom), each)


def _node(has: Mapping[str, float], has_driver: bool) -> Capacity:
    custom = {name: amount for name, amount in has.items() if name not in RAYS_OWN}
    memory = int(has["memory"]) if "memory" in has else None
    return Capacity(has.get("CPU", 0.0), has.get("GPU", 0.0), memory, custom, has_driver=has_driver)
