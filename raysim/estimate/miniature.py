"""A run in small: one client and a few rounds of a few tasks."""

from collections.abc import Sequence
from dataclasses import replace

from raysim.config import Config
from raysim.config.timing import Clients, SynchronousSchedule
from raysim.data.scenario import Task
from raysim.federation.availability import plan_availability
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream


def make_miniature(
    config: Config, federation: Federation, tasks: Sequence[Task], stream: Stream, rounds: int
) -> tuple[Config, Federation]:
    """Return a run of so many rounds of each of these tasks, with one client that has this stream."""
    small = config.model_copy(
        update={
            "scenario": config.scenario.model_copy(
                update={"tasks": len(tasks), "boundaries": "synchronous", "order": "same", "online": False}
            ),
            "clients": Clients(count=1),
            "training": config.training.model_copy(
                update={"rounds_per_task": rounds, "local_epochs": 1, "local_steps": None}
            ),
            "schedule": SynchronousSchedule(),
            "participation": config.participation.model_copy(update={"fraction": 1.0, "count": None}),
        }
    )
    times = plan_availability(small, [stream])
    return small, replace(federation, tasks=tasks, streams=[stream], availability=times, opener=None)
