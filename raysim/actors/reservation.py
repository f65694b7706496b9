"""Placement of actors: the coordinator on the driver's node, the hosts spread over the nodes or packed onto few."""

from collections.abc import Iterable, Mapping
from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from raysim.actors import liveness, node_capacity
from raysim.estimate.placement import Placement, beside_server
from raysim.system.errors import Lost, RunError

NODE = "ray.io/node-id"  # the label of nodes
PATIENCE = 30  # seconds to wait for resources that others still hold, such as the hosts of an earlier run


def beside_the_driver() -> dict[str, Any]:
    """Return the options of the coordinator: no CPU, on the driver's node. The loss of that node ends the run anyway.

    The affinity is not soft. Otherwise Ray (2.60) would use another node if this one has no idle process.
    """
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(this_node(), soft=False)}


def this_node() -> str:
    """Return the id of this process's node."""
    return str(ray.get_runtime_context().get_node_id())


def elsewhere(avoid: Iterable[str]) -> dict[str, str]:
    """Return the label selector of an actor that may be on any node except those with these ids."""
    return {NODE: f"!in({', '.join(avoid)})"}


class Places:
    """The resources of all host actors of a run and, if it has a share, of the coordinator, reserved together.

    Reserving them one by one could deadlock. A run with only some of its hosts would wait forever, and so would a
    coordinator if the hosts hold its share. The constructor raises the errors of `wait`.
    """

    def __init__(self, placement: Placement) -> None:
        each = {"CPU": placement.cpus, "GPU": placement.gpus, **placement.custom}
        each = {name: share for name, share in each.items() if share}
        self.placement = placement
        own = {name: share for name, share in zip(("CPU", "GPU"), placement.server, strict=True) if share}
        # Ray (2.60) places shares in this order. If hosts came first, they could take the coordinator's only node.
        shares = [own] if own else []
        selectors = [{NODE: this_node()}] if own else []
        self._first = len(shares)  # the index of the first host's share
        shares += [each] * placement.actors
        selectors += [elsewhere(placement.avoid) if placement.avoid else {}] * placement.actors
        strategy = "PACK" if placement.packed else "SPREAD"
        self.group = liveness.answer(
            lambda: placement_group(shares, strategy, bundle_label_selector=selectors if any(selectors) else None)
        )
        try:
            self.wait()
        except BaseException:
            self.give_back()
            raise

    def options(self) -> list[dict[str, Any]]:
        """Return each host actor's options."""
        wanted = self.placement
        each = {"num_cpus": wanted.cpus, "num_gpus": wanted.gpus, "resources": dict(wanted.custom)}
        places = [PlacementGroupSchedulingStrategy(self.group, self._first + host) for host in range(wanted.actors)]
        return [{**each, "scheduling_strategy": place} for place in places]

    def of_coordinator(self) -> dict[str, Any]:
        """Return the coordinator's options: on the driver's node, with its share if it has one."""
        cpus, gpus = self.placement.server
        if not cpus and not gpus:
            return beside_the_driver()
        place = PlacementGroupSchedulingStrategy(self.group, 0)
        return {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": place}

    def nodes(self) -> list[str]:
        """Return the id of each host's node."""
        of_shares = liveness.answer(lambda: placement_group_table(self.group))["bundles_to_node_id"]
        return [str(of_shares[self._first + host]) for host in range(self.placement.actors)]

    def wait(self) -> None:
        """Wait until everything is reserved. Call it again while hosts start: the loss of a node ends a reservation.

        Raises:
            Lost: the cluster no longer has room for the hosts.
            RunError: other programs hold the resources.
        """
        wanted = self.placement
        for _ in range(PATIENCE):
            liveness.CURRENT.check()
            if liveness.answer(lambda: self.group.wait(1)):
                return
            there = liveness.answer(node_capacity.present_nodes)
            nodes = node_capacity.combine(node for name, node in there.items() if name not in wanted.avoid)
            room = beside_server(wanted.server, nodes).room(wanted.cpus, wanted.gpus, wanted.custom)
            if room < wanted.actors:
                raise Lost("a node", "the other nodes have no room for its hosts")
        *own, listed = (_listed(share) for share in self.group.bundle_specs[: self._first + 1])
        beside = f", and the server {own[0]} on this node" if own else ""
        raise RunError(
            f"{wanted.actors} hosts need {listed} each{beside}, which other programs hold (see `ray status`); wait for "
            "these programs, or give each host less"
        )

    def give_back(self) -> None:
        """End the hosts and release their resources, which Ray would otherwise keep until this process ends."""
        liveness.ask(lambda: remove_placement_group(self.group))


def _listed(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{share:g} {name}" for name, share in shares.items())
