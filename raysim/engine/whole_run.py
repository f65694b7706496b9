"""A run in one process, which computes its clients one after the other."""

import threading
from collections.abc import Generator, Mapping

from raysim.config import Config
from raysim.engine.compatibility import check_fit
from raysim.engine.events import Event
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import check_model
from raysim.models.flat import FlatModel
from raysim.system.errors import convert_to_run_error

DEBUGGING = "raysim run --local helps to debug it"


def simulate_here(
    config: Config,
    federation: Federation,
    server: bytes | None,
    clients: Mapping[int, bytes] | None,
    model: FlatModel | None = None,
) -> Simulation:
    """Return a simulation that computes all clients in this process.

    Args:
        config: the resolved config.
        federation: its data.
        server: the checkpoint's record of the server; None starts the run from its beginning.
        clients: the checkpoint's records of the clients.
        model: see Simulation.
    """
    return Simulation(config, federation, LocalRunner(config, federation, clients), server, model)


class WholeRun:
    """A run of a sweep, in this process. Errors of custom code become RunErrors.

    Args:
        config, federation, server, clients: as in `simulate_here`.
        stopping: set by any thread to end the run after the round in progress.
    """

    def __init__(
        self,
        config: Config,
        federation: Federation,
        server: bytes | None,
        clients: Mapping[int, bytes] | None,
        stopping: threading.Event,
    ) -> None:
        self._makes = config, federation, server, clients
        self._stopping = stopping

    def events(self) -> Generator[Event, None, None]:
        """Run to the last round, or until stopped. Raises RunError."""
        with convert_to_run_error(DEBUGGING):
            simulation = simulate_here(*self._makes)
            simulation.stopping = self._stopping
            yield from simulation.events()

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._stopping.set()

    def heard(self) -> None:
        """Do nothing. The run continues when the caller requests the next event."""


def load_federation(config: Config) -> Federation:
    """Return a run's data, checked to suit the scenario and the model.

    Raises:
        ConfigError: the data are missing, or the data or the model do not suit the scenario.
        RunError: the user's code for the data or the model failed.
    """
    with convert_to_run_error(DEBUGGING):
        federation = build_federation(config)
        model = check_model(config, federation.shape, federation.classes, federation.vocabulary)
        check_fit(config, model, federation.classes)
        return federation
