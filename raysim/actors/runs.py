"""Whole runs on Ray: each in an actor of its own, which has all of the run's clients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from raysim.actors import failures
from raysim.actors.process import register_tensors, set_up_actor
from raysim.config import Config
from raysim.engine.batch import Executor, ResumeState, WholeRun
from raysim.engine.events import Event
from raysim.estimate.concurrency import CPUS_OF_A_RUN
from raysim.federation.federation import Federation
from raysim.system.errors import ConfigError, RunError

FEWER = "with fewer runs at a time (--jobs) each has more memory"


class RunProcess(WholeRun):
    """A whole run as an actor. Two threads: one runs, one can be asked to stop."""

    def __init__(self, config: Config, federation: Federation, resume_from: ResumeState | None) -> None:
        set_up_actor(config.resources.gpus_per_actor)
        super().__init__(config, federation, resume_from)

    def events(self) -> Iterator[tuple[Event, int]]:
        """Run from the first round to the last; with each event the most memory so far, this process's, in bytes."""
        yield from self._events


class RayRun:
    """A run in an actor; a RunningJob.

    Args:
        config: the resolved config.
        federation: its data.
        resume_from: where the run goes on from a checkpoint, or None for its start.
    """

    def __init__(self, config: Config, federation: Federation, resume_from: ResumeState | None) -> None:
        kind: Any = ray.remote(RunProcess)
        takes = config.resources
        placed = kind.options(
            num_cpus=CPUS_OF_A_RUN, num_gpus=takes.gpus_per_actor, resources=takes.custom, max_concurrency=2
        )
        self._actor = placed.remote(config, ray.put(federation), ray.put(resume_from))
        self.coming = self._actor.events.options(num_returns="streaming").remote()

    def __next__(self) -> tuple[Event, int]:
        """Wait for the next event; with it the most memory so far, the actor's, in bytes.

        Raises:
            ConfigError: the run's config does not serve it.
            RunError: the run failed, or the actor died.
        """
        try:
            event: tuple[Event, int] = ray.get(next(self.coming))
        except RayError as error:
            raise _failure(error) from error
        return event

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._actor.stop.remote()

    def end(self) -> None:
        """End the actor."""
        ray.kill(self._actor)


def ray_executor(at_once: int) -> Executor[RayRun]:
    """Return what carries out so many runs at a time, each in an actor, on the cluster that is connected."""
    register_tensors()
    return Executor(at_once, RayRun, _wait)


def _wait(running: Sequence[RayRun]) -> RayRun:
    (coming, *_), _ = ray.wait([run.coming for run in running])
    return next(run for run in running if run.coming == coming)


def _failure(error: RayError) -> ConfigError | RunError:
    if isinstance(error, failures.DEATHS):
        lost = failures.death("the run's process", error)
        return RunError(f"{lost}; {FEWER}")
    cause = error.cause if isinstance(error, RayTaskError) else error
    return cause if isinstance(cause, ConfigError | RunError) else RunError(f"{type(cause).__name__}: {cause}")
