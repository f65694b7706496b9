"""What the loss of an actor looks like to the user: one line that says whose it was and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError

from raysim.system.errors import ConfigError, Lost, RunError

LEAST_MEMORY = "with resources.clients_per_actor=auto a run takes the least memory"
DEATHS = (RayActorError, OutOfMemoryError)  # of an actor; the second where Ray's own watch over memory ended it


@contextmanager
def explain_ray_errors(who: Callable[[], str]) -> Iterator[None]:
    """Raise what an error of Ray's means in its place; `who` says whom the call was to."""
    try:
        yield
    except RayError as error:
        raise failure(error, who()) from None


def failure(error: RayError, who: str) -> Exception:
    """Return what an error of Ray's means: raysim's own error that travelled in it, or that somebody is gone.

    Args:
        error: what Ray raised.
        who: whom the call was to.
    """
    if isinstance(error, RayTaskError):
        if isinstance(error.cause, RunError | ConfigError):
            return error.cause
        if not isinstance(error.cause, RayError):
            return error  # a mistake of raysim's own: its traceback is wanted
    if isinstance(error, DEATHS):
        return death(who, error)
    return Lost("a process", f"what it held is gone ({type(error).__name__})", LEAST_MEMORY)


def death(who: str, error: RayActorError | OutOfMemoryError) -> RunError:
    """Return what to say when an actor is gone."""
    if isinstance(error, RayActorError) and error.actor_init_failed:
        return RunError(f"{who} could not start: {str(error).strip().splitlines()[-1]}")
    starved = isinstance(error, OutOfMemoryError) or "low on memory" in str(error)
    how = "Ray ended it, as memory ran low" if starved else "its process ended (killed, crashed, or out of memory)"
    return Lost(who, how, LEAST_MEMORY)
