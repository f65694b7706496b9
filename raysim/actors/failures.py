"""What a failure inside an actor looks like to the user: one line, and the traceback of what is the user's own code."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from ray.exceptions import RayActorError

from raysim.errors import ConfigError, RunError


@contextmanager
def told_briefly() -> Iterator[None]:
    """Turn an exception of a method's or a model's own code into a RunError; its traceback travels along as a note."""
    try:
        yield
    except (RunError, ConfigError):
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = "".join(traceback.format_exception_only(error)).strip()  # with its notes, such as client and round
        told = RunError(f"{said.replace(chr(10), ', ')} ({frame.filename}:{frame.lineno}); --local helps to debug it")
        told.add_note("".join(traceback.format_exception(error)).rstrip())
        raise told from None


def death(who: str, error: RayActorError) -> RunError:
    """Return what to say when an actor is gone."""
    if error.actor_init_failed:
        return RunError(f"{who} could not start: {str(error).strip().splitlines()[-1]}")
    starved = "low on memory" in str(error)
    how = "Ray ended it, as memory ran low" if starved else "its process ended (killed, crashed, or out of memory)"
    return RunError(f"{who} died: {how}; with resources.clients_per_actor=auto a run takes the least memory")
