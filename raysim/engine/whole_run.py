"""A whole run in one process, and where such runs are carried out."""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

from raysim.config import Config
from raysim.engine.compatibility import check_fit
from raysim.engine.events import Event, RoundDone
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import check_model
from raysim.system.errors import convert_to_run_error
from raysim.system.footprint import Footprint

ResumeState = tuple[bytes, Mapping[int, bytes]]
"""The records of the server and of the clients, by client, from which a run resumes."""

DEBUGGING = "raysim run --local helps to debug it"


class RunInProgress(Protocol):
    """A run that an executor has started."""

    def __next__(self) -> tuple[Event, int]:
        """Return the next event, waiting for it, and the peak memory of the run's process so far, in bytes.

        Raises:
            ConfigError: the config does not suit the run.
            RunError: the run failed, or its process died.
            StopIteration: there are no more events.
        """

    def stop(self) -> None:
        """End the run after the round in progress. Called from another thread."""

    def heard(self) -> None:
        """Have the next round begin, as the event was heard of; asked where callbacks may end the run."""

    def end(self) -> None:
        """Release the resources that the run still holds."""


@dataclass(frozen=True)
class Executor:
    """Where whole runs are carried out.

    Attributes:
        at_once: the most runs in progress at a time.
        start: starts a run on its data, from its first round or from a checkpoint.
        wait: waits for a run in progress whose next event can be fetched.
    """

    at_once: int
    start: Callable[[Config, Federation, ResumeState | None], RunInProgress]
    wait: Callable[[Sequence[Any]], RunInProgress]


class WholeRun:
    """A run of which all clients are computed in this process, one after the other; a RunInProgress.

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

    def heard(self, stopping: bool = False) -> None:
        """Do nothing: the next round begins with the next event that is asked for."""

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
        model = check_model(config, federation.shape, federation.classes, federation.vocabulary)
        check_fit(config, model, federation.classes)
        return federation
