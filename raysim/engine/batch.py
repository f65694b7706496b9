"""A batch of whole runs, each in one process, started as there is room; the failure of one does not end the others."""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from raysim.config import Config
from raysim.engine.events import Event, RoundDone
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import check_model
from raysim.system.errors import ConfigError, RunError, convert_to_run_error
from raysim.system.footprint import Footprint

ResumeState = tuple[bytes, Mapping[int, bytes]]
"""The records of the server and of the clients, by client, from which a run resumes."""

DEBUGGING = "raysim run --local helps to debug it"


@dataclass(frozen=True)
class Job:
    """One run of a batch: its folder, which no other run of the batch has, and its resolved config."""

    folder: str
    config: Config


@dataclass(frozen=True)
class JobEvent:
    """A job's next event, and the peak memory of its process so far, in bytes."""

    job: Job
    event: Event
    peak_memory_bytes: int


@dataclass(frozen=True)
class JobFailed:
    """The failure of a job, which ended before its last event or could not begin."""

    job: Job
    error: ConfigError | RunError


class RunningJob(Protocol):
    """A job that is in progress."""

    def __next__(self) -> tuple[Event, int]:
        """Return the next event, waiting for it, and the peak memory of the run's process so far, in bytes.

        Raises:
            ConfigError: the config does not suit the run.
            RunError: the run failed, or its process died.
            StopIteration: there are no more events.
        """

    def stop(self) -> None:
        """End the run after the round in progress. Called from another thread."""

    def end(self) -> None:
        """Release the resources that the run still holds."""


R = TypeVar("R", bound=RunningJob)


@dataclass(frozen=True)
class Executor(Generic[R]):
    """Where the jobs of a batch are carried out.

    Attributes:
        at_once: the most jobs in progress at a time.
        start: starts a job on its data, from its first round or from a checkpoint.
        wait: waits for a job in progress whose next event can be fetched.
    """

    at_once: int
    start: Callable[[Config, Federation, ResumeState | None], R]
    wait: Callable[[Sequence[R]], R]


@dataclass(eq=False)
class Batch(Generic[R]):
    """Carries out jobs. Their data are read in this process, so that no other node needs the files.

    Attributes:
        jobs: the jobs in the order in which they begin.
        executor: where they are carried out.
        begin: called with each job whose data have been read, the data, and when reading began (time.perf_counter);
            returns the records to resume from, or None to start. A ConfigError or RunError that it raises fails the
            job.
    """

    jobs: Sequence[Job]
    executor: Executor[R]
    begin: Callable[[Job, Federation, float], ResumeState | None]
    _running: dict[R, Job] = field(default_factory=dict, init=False)
    _stopping: bool = field(default=False, init=False)

    def events(self) -> Generator[JobEvent | JobFailed, None, None]:
        """Carry out all jobs, and iterate over what happens; closing the iterator ends those in progress."""
        waiting = deque(self.jobs)
        try:
            while True:
                while waiting and len(self._running) < self.executor.at_once and not self._stopping:
                    yield from self._start(waiting.popleft())
                if not self._running:
                    return
                yield from self._next(self.executor.wait(list(self._running)))
        finally:
            for run in self._running:
                run.end()

    def stop(self) -> None:
        """Begin no more jobs, and let those in progress end after their present round."""
        self._stopping = True
        for run in list(self._running):
            run.stop()

    def _start(self, job: Job) -> Iterator[JobFailed]:
        began = time.perf_counter()
        try:
            federation = load_federation(job.config)
            if self._stopping:
                return
            resume_from = self.begin(job, federation, began)
        except (ConfigError, RunError) as error:
            yield JobFailed(job, error)
            return
        run = self.executor.start(job.config, federation, resume_from)
        self._running[run] = job
        if self._stopping:
            run.stop()

    def _next(self, run: R) -> Iterator[JobEvent | JobFailed]:
        """Yield a run's next event, or its failure, or nothing at its end; the other runs then take precedence."""
        job = self._running[run]
        try:
            event, peak_memory_bytes = next(run)
        except (StopIteration, ConfigError, RunError) as end:
            run.end()
            del self._running[run]
            if not isinstance(end, StopIteration):
                yield JobFailed(job, end)
        else:
            self._running[run] = self._running.pop(run)
            yield JobEvent(job, event, peak_memory_bytes)


class WholeRun:
    """A run of which all clients are computed in this process, one after the other; a RunningJob.

    Args:
        config: the resolved config.
        federation: its data.
        resume_from: the checkpoint's records to resume from, or None to start the run from its beginning.
    """

    def __init__(self, config: Config, federation: Federation, resume_from: ResumeState | None = None) -> None:
        self._stopping = threading.Event()
        self._events = self._run(config, federation, resume_from)

    def __next__(self) -> tuple[Event, int]:
        """Run until the next event; return it and this process's peak memory so far, in bytes.

        Raises:
            RunError: the run failed.
        """
        return next(self._events)

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._stopping.set()

    def end(self) -> None:
        """Abandon the run in its present state."""
        self._events.close()

    def _run(
        self, config: Config, federation: Federation, resume_from: ResumeState | None
    ) -> Generator[tuple[Event, int], None, None]:
        with convert_to_run_error(DEBUGGING), Footprint() as footprint:
            server, clients = resume_from or (None, None)
            runner = LocalRunner(config, federation, clients)
            simulation = Simulation(config, federation, runner, server)
            simulation.stopping = self._stopping
            for event in simulation.events():
                if not isinstance(event, RoundDone):
                    footprint.sample()  # at the start and at the end, as a run may be shorter than the interval
                yield event, footprint.peak_bytes


IN_THIS_PROCESS = Executor(1, WholeRun, itemgetter(0))


def load_federation(config: Config) -> Federation:
    """Return a run's data, checked to suit the scenario and the model.

    Raises:
        ConfigError: the data are missing, or they or the model do not suit the scenario.
        RunError: the user's own code for the data or the model failed.
    """
    with convert_to_run_error(DEBUGGING):
        federation = build_federation(config)
        check_model(config, federation.shape, federation.classes)
        return federation
