"""Whole runs on Ray, each in a separate actor, which has all of the run's clients."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from raysim.actors import failures, liveness, workers
from raysim.actors.actor_setup import set_up_actor
from raysim.actors.serialization import register_tensors
from raysim.config import Config
from raysim.engine.events import STOPPABLE, Event
from raysim.engine.whole_run import Executor, ResumeState, WholeRun
from raysim.estimate.concurrency import CPUS_OF_A_RUN
from raysim.federation.federation import Federation
from raysim.system.errors import ConfigError, RunError

FEWER = "with fewer runs at a time (--jobs) each has more memory"


class RunProcess(WholeRun):
    """A whole run as an actor. Two threads: one runs, the other receives the call to stop."""

    def __init__(self, config: Config, federation: Federation, resume_from: ResumeState | None) -> None:
        set_up_actor(config.resources.gpus_per_actor)
        super().__init__(config, federation, resume_from)
        self._paced = bool(config.callbacks)
        self._heard = threading.Semaphore(0)

    def events(self) -> Iterator[tuple[Event, int]]:
        """Run from the first round to the last; yield each event with this process's peak memory so far, in bytes.

        Where callbacks may end the run, each round waits until they have heard of the one before.
        """
        for event, peak in self._events:
            yield event, peak
            if self._paced and isinstance(event, STOPPABLE):
                self._heard.acquire()

    def heard(self, stopping: bool = False) -> None:
        """Continue the run, or end it."""
        if stopping:
            self.stop()
        self._heard.release()


class RayRun:
    """A run in an actor; a RunInProgress.

    Args:
        config: the resolved config.
        federation: its data.
        resume_from: the checkpoint's records to resume from, or None to start the run from its beginning.
    """

    def __init__(self, config: Config, federation: Federation, resume_from: ResumeState | None) -> None:
        liveness.check()
        kind: Any = ray.remote(RunProcess)
        takes = config.resources
        placed = kind.options(
            num_cpus=CPUS_OF_A_RUN,
            num_gpus=takes.gpus_per_actor,
            resources=takes.custom,
            max_concurrency=2,
            **workers.start_here(takes),
        )
        self._actor = placed.remote(config, ray.put(federation), ray.put(resume_from))
        self._stopping = False
        self.coming = self._actor.events.options(num_returns="streaming").remote()

    def __next__(self) -> tuple[Event, int]:
        """Return the next event, waiting for it, and the actor's peak memory so far, in bytes.

        Raises:
            ConfigError: the config does not suit the run.
            RunError: the run failed, or the actor died.
        """
        try:
            event: tuple[Event, int] = ray.get(next(self.coming))
        except RayError as error:
            raise _failure(error) from error
        return event

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._stopping = True
        self._actor.stop.remote()

    def heard(self) -> None:
        """Have the next round begin, as the driver has heard of the last event."""
        self._actor.heard.remote(self._stopping)

    def end(self) -> None:
        """End the actor."""
        liveness.ask(lambda: ray.kill(self._actor))


def ray_executor(at_once: int) -> Executor:
    """Return an executor of up to `at_once` runs at a time, each in an actor, on the cluster that is connected."""
    register_tensors()
    return Executor(at_once, RayRun, _wait)


def _wait(running: Sequence[RayRun]) -> RayRun:
    coming = liveness.wait([run.coming for run in running])
    return next(run for run in running if run.coming == coming)


def _failure(error: RayError) -> ConfigError | RunError:
    if isinstance(error, failures.DEATHS):
        lost = failures.death("the run's process", error)
        return RunError(f"{lost}; {FEWER}")
    cause = error.cause if isinstance(error, RayTaskError) else error
    return cause if isinstance(cause, ConfigError | RunError) else RunError(f"{type(cause).__name__}: {cause}")
