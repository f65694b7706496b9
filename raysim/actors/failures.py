"""What the loss of an actor looks like to the user: one line that says whose it was and what to do."""

from __future__ import annotations

from ray.exceptions import RayActorError

from raysim.errors import RunError

LEAST_MEMORY = "with resources.clients_per_actor=auto a run takes the least memory"


def death(who: str, error: RayActorError, advice: str = LEAST_MEMORY) -> RunError:
    """Return what to say when an actor is gone."""
    if error.actor_init_failed:
        return RunError(f"{who} could not start: {str(error).strip().splitlines()[-1]}")
    starved = "low on memory" in str(error)
    how = "Ray ended it, as memory ran low" if starved else "its process ended (killed, crashed, or out of memory)"
    return RunError(f"{who} died: {how}; {advice}")
