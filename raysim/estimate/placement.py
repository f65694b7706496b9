"""What a run would take, and whether it is there: decided before anything starts, so that nothing hangs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from raysim.config import Config
from raysim.config.error_text import nearest, show
from raysim.estimate.memory import MemoryNeed, processes_alone
from raysim.system.capacity import CAN_FORK, GIB, MOST_OF_MEMORY, Capacity, turns
from raysim.system.errors import ConfigError


@dataclass(frozen=True)
class Placement:
    """The host actors of a run.

    Attributes:
        clients: the ids of the clients that each owns.
        cpus: what each asks Ray for.
        gpus: what each asks Ray for.
        memory_bytes: the estimate of the whole run.
        custom: what each asks Ray for of a cluster's custom resources.
        packed: whether they go to few nodes.
        warning: that the cluster has less memory, if `resources.memory` is warn and it has.
        avoid: the ids of nodes that get no host.
        server: the CPUs and GPUs that the coordinator asks Ray for.
    """

    clients: Sequence[Sequence[int]]
    cpus: float
    gpus: float
    memory_bytes: int
    custom: Mapping[str, float] = field(default_factory=dict)
    packed: bool = False
    warning: str = ""
    avoid: Sequence[str] = ()
    server: tuple[float, float] = (0, 0)

    @property
    def actors(self) -> int:
        """The number of host actors."""
        return len(self.clients)


def place(config: Config, capacity: Capacity, need: MemoryNeed | None = None) -> Placement:
    """Deal the clients to host actors and check that the cluster has what they ask for.

    Args:
        config: the resolved config.
        capacity: what the cluster has.
        need: the memory that it takes, where the data are known; None counts the processes alone.

    Raises:
        ConfigError: it has not.
    """
    wanted = config.resources
    if wanted.workers == "forked" and not wanted.forks:
        raise ConfigError("resources.workers: found forked, allowed: auto or spawned, as this system is not Linux")
    check_gpus(config, capacity)
    check_custom(config, capacity)
    check_server(config, capacity)
    server = wanted.server_cpus, wanted.server_gpus
    capacity = beside_server(server, capacity)
    actors = _actors(config, capacity)
    if capacity.room(0, wanted.gpus_per_actor, {}) < actors:
        raise ConfigError(
            f"resources.gpus_per_actor: found {wanted.gpus_per_actor:g} for each of {actors} actors, the cluster has "
            f"{capacity.gpus:g} GPUs{_beside(wanted.server_gpus)}; give each less, or set "
            "resources.clients_per_actor=auto"
        )
    room = capacity.room(0, wanted.gpus_per_actor, wanted.custom)
    if room < actors:
        raise ConfigError(
            f"resources.custom: found {_listed(wanted.custom)} for each of {actors} actors, the cluster has room for "
            f"{room:g} of them; give each less, or set resources.clients_per_actor=auto"
        )
    dealt = [range(first, config.clients.count, actors) for first in range(actors)]
    cpus, packed = _cpus(config, actors, capacity), wanted.placement == "pack"
    placement = Placement(dealt, cpus, wanted.gpus_per_actor, 0, wanted.custom, packed, server=server)
    return check_memory(config, capacity, placement, need or processes_alone(config))


def check_memory(config: Config, capacity: Capacity, placement: Placement, need: MemoryNeed) -> Placement:
    """Return the placement with the bytes that the run takes. Raises ConfigError: see `_lack`."""
    actors, warning = placement.actors, ""
    memory = need.total(actors, at_once(config, actors, placement.cpus))
    if capacity.memory is not None and memory > MOST_OF_MEMORY * capacity.memory:
        warning = _lack(
            config,
            f"resources.clients_per_actor: {_of(actors)} would take about {memory / GIB:.1f} GiB, allowed: "
            f"{MOST_OF_MEMORY:.0%} of the {capacity.memory / GIB:.1f} GiB there are; "
            + _what_fits(config, capacity, need),
        )
    if need.clients and not warning:
        warning = _check_nodes(config, capacity, placement.cpus, actors, need)
    return replace(placement, memory_bytes=memory, warning=warning)


def _lack(config: Config, text: str) -> str:
    """Return the text about lacking memory as a warning. Raises ConfigError: `resources.memory` is refuse."""
    if config.resources.memory == "refuse":
        raise ConfigError(text)
    return text


def hosts_by_node(placement: Placement, capacity: Capacity) -> list[int]:
    """Return how many hosts each node of a cluster gets that gets any, as Ray spreads or packs them; most first."""
    nodes = beside_server(placement.server, capacity).nodes
    room = sorted((node.room(placement.cpus, placement.gpus, placement.custom) for node in nodes), reverse=True)
    hosts = [0] * len(room)
    for _ in range(placement.actors):
        free = [node for node, count in enumerate(hosts) if count < room[node]]
        hosts[free[0] if placement.packed else min(free, key=hosts.__getitem__)] += 1
    return sorted((count for count in hosts if count), reverse=True)


def _check_nodes(config: Config, capacity: Capacity, cpus: float, actors: int, need: MemoryNeed) -> str:
    """Return a warning about hosts that a cluster's nodes have no memory for, or "". Raises ConfigError."""
    clients = config.clients.count

    def largest(hosts: int) -> int:
        return max(need.resting_with(range(first, clients, hosts)) for first in range(hosts))

    def room(hosts: int) -> float:
        each = largest(hosts)
        return sum(_room(config, node, cpus, each, need.working) for node in capacity.nodes)

    if not capacity.nodes or room(actors) >= actors:
        return ""
    fewer = next((hosts for hosts in range(actors - 1, 0, -1) if room(hosts) >= hosts), None)
    less = f"set resources.clients_per_actor={math.ceil(clients / fewer)}" if fewer else _smaller(need)
    most = largest(actors) + need.working
    return _lack(
        config,
        f"resources.clients_per_actor: {_of(actors)} of up to {most / GIB:.2g} GiB each, the cluster's "
        f"nodes have memory for {room(actors):g} of them; {less}",
    )


def _room(config: Config, node: Capacity, cpus: float, resting: int, working: int) -> float:
    """Return how many hosts a node has resources and memory for, of which each takes more while it computes."""
    hosts = node.room(cpus, config.resources.gpus_per_actor, config.resources.custom)
    if node.memory is None:
        return hosts
    hosts = min(hosts, node.memory // resting)
    while hosts and hosts * resting + at_once(config, int(hosts), cpus) * working > node.memory:
        hosts -= 1
    return hosts


def at_once(config: Config, actors: int, cpus: float) -> int:
    """Return how many hosts compute at a time: those that have a share of a CPU each take turns."""
    return turns(cpus, actors) if take_turns(config, cpus) else actors


def take_turns(config: Config, cpus: float) -> bool:
    """Return whether hosts that have these CPUs each take turns at computing."""
    wanted = config.resources
    return cpus < 1 and not wanted.gpus_per_actor and wanted.cpus_per_actor == "auto"


def check_alone(config: Config, capacity: Capacity, need: MemoryNeed) -> str:
    """Return a warning about a run in this process that this machine cannot hold, or "".

    Of a GPU's memory, where most of it would be, nothing is known.

    Raises:
        ConfigError: `resources.memory` is refuse.
    """
    if not config.resources.gpus_per_actor and capacity.memory and need.alone > MOST_OF_MEMORY * capacity.memory:
        return _lack(
            config,
            f"clients.count: {len(need.clients):,} in one process would take about {need.alone / GIB:.1f} GiB, "
            f"allowed: {MOST_OF_MEMORY:.0%} of the {capacity.memory / GIB:.1f} GiB there are; {_smaller(need)}",
        )
    return ""


def _smaller(need: MemoryNeed) -> str:
    """Return what takes less, whatever the actors."""
    less = [f"set {knob}, which keeps {nbytes / GIB:.1f} GiB less, or " for knob, nbytes in need.savings().items()]
    smaller = f"{''.join(less)}take a smaller model, dataset, memory.capacity or clients.count"
    return f"{smaller}, or set resources.memory=warn to start it all the same"


def _what_fits(config: Config, capacity: Capacity, need: MemoryNeed) -> str:
    """Return the setting with which a run's memory would fit."""
    assert capacity.memory is not None
    clients, room = config.clients.count, MOST_OF_MEMORY * capacity.memory
    cpus = max(1, int(capacity.cpus))
    actors = _actors(config, capacity)
    if CAN_FORK and replace(need, forked=True).total(actors, min(actors, cpus)) <= room:
        return "set resources.workers=forked"
    fits = [n for n in range(1, clients + 1) if need.total(n, min(n, cpus)) <= room]
    if not fits:
        return f"nothing fits: one actor would take {need.total(1, 1) / GIB:.1f} GiB; {_smaller(need)}"
    auto = config.resources.model_copy(update={"clients_per_actor": "auto"})
    actors = _actors(config.model_copy(update={"resources": auto}), capacity)
    least = f"resources.clients_per_actor={math.ceil(clients / fits[-1])}"
    return (
        f"set resources.clients_per_actor=auto, which makes {_of(actors)}, or {least}"
        if actors in fits
        else f"set {least}"
    )


def _of(actors: int) -> str:
    return f"{actors} actor{'s' if actors > 1 else ''}"


def check_gpus(config: Config, capacity: Capacity) -> None:
    """Refuse a share of GPUs that does not exist. Raises ConfigError."""
    wanted, address = config.resources, config.resources.address
    for key, share in (("gpus_per_actor", wanted.gpus_per_actor), ("server_gpus", wanted.server_gpus)):
        if share > capacity.gpus == 0:
            lacking = f"no node of {address} has a GPU now" if address else "this machine has no GPU that torch can use"
            words = f"found {share:g}, and {lacking}; allowed: 0, to compute on CPUs"
            raise ConfigError(words, f"resources.{key}")
        if share > capacity.gpus:
            raise ConfigError(
                f"resources.{key}: found {share:g}, the cluster has {capacity.gpus:g} GPUs; "
                f"allowed: a number from 0 to {capacity.gpus:g}"
            )


def check_threads(config: Config, capacity: Capacity) -> None:
    """Refuse more threads for the server than this machine has CPUs, for --local. Raises ConfigError."""
    if config.resources.server_cpus > capacity.cpus:
        raise ConfigError(
            f"resources.server_cpus: found {config.resources.server_cpus}, allowed with --local: at most "
            f"{capacity.cpus:g}, this machine's CPUs"
        )


def check_server(config: Config, capacity: Capacity) -> None:
    """Refuse a share of the coordinator that its node, the driver's, does not have. Raises ConfigError."""
    wanted = config.resources
    if wanted.server_cpus >= capacity.cpus:
        raise ConfigError(
            f"resources.server_cpus: found {wanted.server_cpus}, allowed: at most {max(capacity.cpus - 1, 0):g}, as "
            f"hosts need the rest of the {capacity.cpus:g} CPUs"
        )
    for node in (node for node in capacity.nodes or [capacity] if node.has_driver or not capacity.nodes):
        for key, share, has in (("cpus", wanted.server_cpus, node.cpus), ("gpus", wanted.server_gpus, node.gpus)):
            if share > has:
                raise ConfigError(
                    f"resources.server_{key}: found {share:g}, allowed: at most {has:g}, which this machine's node has"
                )


def beside_server(server: tuple[float, float], capacity: Capacity) -> Capacity:
    """Return what a cluster has for hosts, given the CPUs and GPUs of the coordinator on the driver's node."""
    if capacity.nodes:
        nodes = [beside_server(server, node) if node.has_driver else node for node in capacity.nodes]
        cpus, gpus = sum(node.cpus for node in nodes), sum(node.gpus for node in nodes)
        return replace(capacity, cpus=cpus, gpus=gpus, nodes=nodes)
    return replace(capacity, cpus=capacity.cpus - server[0], gpus=capacity.gpus - server[1])


def _beside(share: float) -> str:
    return f" beside the server's {share:g}" if share else ""


def check_custom(config: Config, capacity: Capacity) -> None:
    """Refuse custom resources that no node has. Raises ConfigError."""
    for name in config.resources.custom:
        if name not in capacity.custom:
            given = [other for other in capacity.custom if ":" not in other]  # the others are Ray's names for its nodes
            there = ", ".join(given) or "none, as this cluster has none; see resources.address"
            raise ConfigError(f"resources.custom: found {show(name)}, allowed: {there}{nearest(name, given)}")
    wanted = config.resources
    if wanted.custom and capacity.room(0, wanted.gpus_per_actor, wanted.custom) < 1:
        raise ConfigError(
            f"resources.custom: found {_listed(wanted.custom)}, allowed: what one node of the cluster has"
        )


def _listed(custom: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:g}" for name, share in custom.items())


def _actors(config: Config, capacity: Capacity) -> int:
    """Return the number of host actors, at most one per client."""
    wanted, clients = config.resources, config.clients.count
    if wanted.clients_per_actor != "auto":
        return math.ceil(clients / wanted.clients_per_actor)
    cpus = wanted.cpus_per_actor
    if cpus == "auto":
        cpus = 0.0 if wanted.gpus_per_actor else 1.0
    return max(1, int(min(clients, capacity.room(cpus, wanted.gpus_per_actor, wanted.custom))))


def _cpus(config: Config, actors: int, capacity: Capacity) -> float:
    """Return the CPUs of each actor: those that are demanded, or the largest share that they all can have."""
    wanted = config.resources

    def fits(cpus: float) -> bool:
        return capacity.room(cpus, wanted.gpus_per_actor, wanted.custom) >= actors

    shares = sorted({share for node in capacity.nodes or [capacity] for share in _shares(node.cpus, actors)})
    most = max(filter(fits, shares), default=0.0)
    if wanted.cpus_per_actor == "auto" and most:
        return min(1.0, most)
    if wanted.cpus_per_actor != "auto" and fits(wanted.cpus_per_actor):
        return wanted.cpus_per_actor
    if wanted.cpus_per_actor == "auto":
        raise ConfigError(
            f"resources.clients_per_actor: found {_of(actors)}, too many to share {_cpus_of(capacity)}"
            f"{_beside(wanted.server_cpus)}; "
            "set resources.clients_per_actor=auto, which makes one actor per CPU"
        )
    raise ConfigError(
        f"resources.cpus_per_actor: found {wanted.cpus_per_actor:g} for each of {actors} actors, the cluster has "
        f"{_cpus_of(capacity)}{_beside(wanted.server_cpus)}; allowed: auto, or at most {most:.4g}"
    )


def _shares(cpus: float, actors: int) -> list[float]:
    """Return the equal shares of a node's CPUs among one actor, two actors, and so on."""
    return [math.floor(cpus / count * 1e4) / 1e4 for count in range(1, actors + 1)]  # Ray counts in ten-thousandths


def _cpus_of(capacity: Capacity) -> str:
    """Return the CPUs of a cluster in words; those of its nodes too, as no actor spans two."""
    nodes = f" on {len(capacity.nodes)} nodes, of which each actor takes one" if len(capacity.nodes) > 1 else ""
    return f"{capacity.cpus:g} CPUs{nodes}"
