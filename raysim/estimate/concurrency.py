"""How many runs, each in one process, there is room for at a time."""

from raysim.estimate.memory import PROCESS_BYTES, SHARED_BYTES
from raysim.system.capacity import MOST_OF_MEMORY, Capacity, fit
from raysim.system.errors import ConfigError

CPUS_OF_A_RUN = 1  # all clients of a run are in one process


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
    fits = [fit(CPUS_OF_A_RUN, capacity.cpus)]
    if capacity.memory is not None:
        room = MOST_OF_MEMORY * capacity.memory - SHARED_BYTES - PROCESS_BYTES  # Ray's and the driver's
        fits.append(int(room / PROCESS_BYTES))
    if gpus:
        fits.append(fit(gpus, capacity.gpus))
    if jobs is not None:
        fits.append(jobs)
    return max(1, min(fits))
