"""How many runs, each in one process, there is room for at a time."""

from collections.abc import Mapping
from types import MappingProxyType

from raysim.config.schema import Resources
from raysim.estimate.memory import PROCESS_BYTES, SHARED_BYTES
from raysim.system.capacity import MOST_OF_MEMORY, Capacity
from raysim.system.errors import ConfigError

CPUS_OF_A_RUN = 1  # all clients of a run are in one process


def gpus_of_a_run(wanted: Resources) -> float:
    """Return the GPUs of a run in one process, where the server and the clients take turns."""
    return max(wanted.gpus_per_actor, wanted.server_gpus)


def runs_at_once(
    capacity: Capacity,
    gpus: float,
    jobs: int | None,
    cpus: float = CPUS_OF_A_RUN,
    custom: Mapping[str, float] = MappingProxyType({}),
) -> int:
    """Return how many runs of a sweep, each a process of its own, a cluster carries out at a time.

    Args:
        capacity: what the cluster has.
        gpus: what each run takes of its GPUs.
        jobs: the most that are wanted.
        cpus: what each run takes of its CPUs.
        custom: what each run takes of its custom resources.

    Raises:
        ConfigError: there is no room for one.
    """
    if capacity.room(cpus, 0, {}) < 1:
        key = "server_cpus" if cpus > CPUS_OF_A_RUN else "address"
        raise ConfigError(
            f"resources.{key}: the cluster has {capacity.cpus:g} CPUs, and each run of a sweep takes {cpus:g}; join "
            "another, or leave address out"
        )
    fits = [int(capacity.room(cpus, gpus, custom))]  # on single nodes, which may have the CPUs and no GPU
    if capacity.memory is not None:
        room = MOST_OF_MEMORY * capacity.memory - SHARED_BYTES - PROCESS_BYTES  # Ray's and the driver's
        fits.append(int(room / PROCESS_BYTES))
    if jobs is not None:
        fits.append(jobs)
    return max(1, min(fits))
