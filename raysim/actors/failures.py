"""Replace Ray's errors by raysim's. The error for a lost actor names the actor, and says what to do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError

from raysim.actors import compat
from raysim.system.capacity import GIB, count_killed, job_memory
from raysim.system.errors import ConfigError, Lost, RunError

LEAST_MEMORY = "with resources.clients_per_actor=auto a run takes the least memory"
ENDED = "its process ended (killed, crashed, or out of memory)"
# Ray's errors for a dead actor. Ray raises OutOfMemoryError if its memory monitor killed the actor.
DEATHS = (RayActorError, OutOfMemoryError)
_killed = count_killed()  # how many processes the kernel had killed at the last call of `watch`


def watch() -> None:
    """Store how many processes the kernel has killed so far. Only later kills count as losses of the run."""
    global _killed
    _killed = count_killed()


def killed_for_memory(what: str) -> str | None:
    """Return a text if the kernel has killed a process of this job for lack of memory since `watch`."""
    if count_killed() == _killed:
        return None
    limit = job_memory()
    if limit is None:
        return f"the kernel killed {what}, because this machine's memory ran out"
    return f"the kernel killed {what} at the memory limit of {limit / GIB:.1f} GiB of this job"


@contextmanager
def explain_ray_errors(who: Callable[[], str]) -> Iterator[None]:
    """Replace an error of Ray by raysim's. `who` returns the name of the actor that was called."""
    try:
        yield
    except RayError as error:
        raise failure(error, who()) from None


def failure(error: RayError, who: str) -> Exception:
    """Return raysim's error for an error of Ray: the error that the actor `who` raised, or the loss of the actor."""
    if isinstance(error, RayTaskError):
        if isinstance(error.cause, RunError | ConfigError):
            return error.cause
        if not isinstance(error.cause, RayError):
            return error  # a bug in raysim, whose traceback is needed
    if isinstance(error, DEATHS):
        return death(who, error)
    return Lost("a process", f"its objects are lost ({type(error).__name__})", LEAST_MEMORY)


def death(who: str, error: RayActorError | OutOfMemoryError) -> RunError:
    """Return the error that reports a lost actor."""
    if isinstance(error, RayActorError) and error.actor_init_failed:
        return RunError(f"{who} could not start: {str(error).strip().splitlines()[-1]}")
    if compat.LOST_NODE in str(error):
        return Lost(who, "its node was lost (it ended, or the network to it was cut)")
    if isinstance(error, OutOfMemoryError) or compat.LOW_MEMORY in str(error):
        return Lost(who, "Ray killed it, because memory ran low", LEAST_MEMORY)
    return Lost(who, killed_for_memory("it") or ENDED, LEAST_MEMORY)
