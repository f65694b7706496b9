"""What a run would take, and whether it is there: decided before anything starts, so that nothing hangs."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
import torch

from raysim.config import Config
from raysim.demand import PROCESS_BYTES, SHARED_BYTES, Demand
from raysim.errors import ConfigError

MIB = 2**20
GIB = 2**30
MOST_OF_MEMORY = 0.8
CPUS_OF_A_RUN = 1  # in a sweep, where all clients of a run are in one process


@dataclass(frozen=True)
class Capacity:
    """What a cluster has, all nodes together; `memory` is null where it is not known."""

    cpus: float
    gpus: float
    memory: int | None


@dataclass(frozen=True)
class Placement:
    """The host actors of a run: which clients each owns, and what each asks Ray for."""

    clients: Sequence[Sequence[int]]
    cpus: float
    gpus: float
    memory_bytes: int

    @property
    def actors(self) -> int:
        """The number of host actors."""
        return len(self.clients)


def this_machine() -> Capacity:
    """Return what a cluster of one's own on this machine would have."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Capacity(cpus, torch.cuda.device_count(), psutil.virtual_memory().total)


def place(config: Config, capacity: Capacity, demand: Demand | None = None) -> Placement:
    """Deal the clients to host actors and check that the cluster has what they ask for.

    Args:
        config: the resolved config.
        capacity: what the cluster has.
        demand: the memory that it takes, where the data are known; None counts the processes alone.

    Raises:
        ConfigError: it has not.
    """
    wanted = config.resources
    check_gpus(config, capacity)
    actors = _actors(config, capacity)
    cpus = _cpus(wanted.cpus_per_actor, actors, capacity)
    if wanted.gpus_per_actor and actors > _fit(wanted.gpus_per_actor, capacity.gpus):
        raise ConfigError(
            f"resources.gpus_per_actor: found {wanted.gpus_per_actor:g} for each of {actors} actors, the cluster has "
            f"{capacity.gpus:g} GPUs; give each less, or set resources.clients_per_actor=auto"
        )
    memory = (demand or Demand()).total(actors, at_once(config, actors, cpus))
    if capacity.memory is not None and memory > MOST_OF_MEMORY * capacity.memory:
        raise ConfigError(
            f"resources.clients_per_actor: {_of(actors)} would take about {memory / GIB:.1f} GiB, allowed: "
            f"{MOST_OF_MEMORY:.0%} of the {capacity.memory / GIB:.1f} GiB there are; "
            + _what_fits(config, capacity, demand or Demand())
        )
    clients = config.clients.count
    return Placement([range(first, clients, actors) for first in range(actors)], cpus, wanted.gpus_per_actor, memory)


def at_once(config: Config, actors: int, cpus: float) -> int:
    """Return how many hosts compute at a time: those that have a share of a CPU each take turns."""
    wanted = config.resources
    shared = cpus < 1 and not wanted.gpus_per_actor and wanted.cpus_per_actor == "auto"
    return math.ceil(cpus * actors) if shared else actors


def _what_fits(config: Config, capacity: Capacity, demand: Demand) -> str:
    """Return the setting with which a run's memory would fit."""
    assert capacity.memory is not None
    clients, room = config.clients.count, MOST_OF_MEMORY * capacity.memory
    cpus = max(1, int(capacity.cpus))
    fits = [n for n in range(1, clients + 1) if demand.total(n, min(n, cpus)) <= room]
    if not fits:
        return (
            f"nothing fits: one actor would take {demand.total(1, 1) / GIB:.1f} GiB; take a smaller model, data set, "
            "memory.capacity or clients.count"
        )
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


def runs_at_once(capacity: Capacity, gpus: float, jobs: int | None) -> int:
    """Return how many runs of a sweep, each a process of its own, a cluster carries out at a time.

    Args:
        capacity: what the cluster has.
        gpus: what each run takes of its GPUs.
        jobs: the most that are wanted.

    Raises:
        ConfigError: there is no room for one.
    """
    if capacity.cpus < CPUS_OF_A_RUN:
        raise ConfigError(
            f"resources.address: the cluster has {capacity.cpus:g} CPUs, and each run of a sweep takes "
            f"{CPUS_OF_A_RUN}; join another, or leave address out"
        )
    fits = [_fit(CPUS_OF_A_RUN, capacity.cpus)]
    if capacity.memory is not None:
        room = MOST_OF_MEMORY * capacity.memory - SHARED_BYTES - PROCESS_BYTES  # Ray's and the driver's
        fits.append(int(room / PROCESS_BYTES))
    if gpus:
        fits.append(_fit(gpus, capacity.gpus))
    if jobs is not None:
        fits.append(jobs)
    return max(1, min(fits))


def check_gpus(config: Config, capacity: Capacity) -> None:
    """Refuse a share of GPUs that does not exist. Raises ConfigError."""
    share = config.resources.gpus_per_actor
    if share > capacity.gpus:
        raise ConfigError(
            f"resources.gpus_per_actor: found {share:g}, the cluster has {capacity.gpus:g} GPUs; "
            f"allowed: a number from 0 to {capacity.gpus:g}"
        )


def _actors(config: Config, capacity: Capacity) -> int:
    """Return the number of host actors, at most one per client."""
    wanted, clients = config.resources, config.clients.count
    if wanted.clients_per_actor != "auto":
        return math.ceil(clients / wanted.clients_per_actor)
    fits = [clients]
    if wanted.gpus_per_actor:
        fits.append(_fit(wanted.gpus_per_actor, capacity.gpus))
    if wanted.cpus_per_actor != "auto":
        fits.append(_fit(wanted.cpus_per_actor, capacity.cpus))
    elif not wanted.gpus_per_actor:
        fits.append(_fit(1.0, capacity.cpus))
    return max(1, min(fits))


def _cpus(wanted: float | str, actors: int, capacity: Capacity) -> float:
    if isinstance(wanted, str):
        return min(1.0, math.floor(capacity.cpus / actors * 1e4) / 1e4)  # Ray counts in ten-thousandths
    if wanted * actors > capacity.cpus + 1e-9:
        raise ConfigError(
            f"resources.cpus_per_actor: found {wanted:g} for each of {actors} actors, the cluster has "
            f"{capacity.cpus:g} CPUs; allowed: auto, or at most {capacity.cpus / actors:.4g}"
        )
    return wanted


def _fit(share: float, whole: float) -> int:
    """Return how many shares fit; a share of one GPU never spans two."""
    return int(whole) * int(1 / share + 1e-9) if share < 1 else int(whole / share + 1e-9)
