"""A whole run in the process that it is called in: what a sweep does, and what its actors do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raysim.config import Config
from raysim.engine.events import Event, RoundDone
from raysim.engine.local_runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import check_model
from raysim.system.errors import convert_to_run_error
from raysim.system.footprint import Footprint

Kept = tuple[bytes, Mapping[int, bytes]]
DEBUGGING = "raysim run --local helps to debug it"


class WholeRun:
    """Runs all clients of a run here, one after the other. `stop`, from another thread, lets the round end.

    Args:
        config: the resolved config.
        federation: its data.
        kept: the server's and the clients' records, where the run goes on from a checkpoint.
    """

    def __init__(self, config: Config, federation: Federation, kept: Kept | None = None) -> None:
        self._config = config
        self._federation = federation
        self._kept = kept
        self._simulation: Simulation | None = None
        self._stopping = False

    def events(self) -> Iterator[tuple[Event, int]]:
        """Run from the first round to the last; with each event the most memory so far, this process's, in bytes."""
        with convert_to_run_error(DEBUGGING), Footprint() as footprint:
            server, clients = self._kept or (None, None)
            runner = LocalRunner(self._config, self._federation, clients)
            self._simulation = Simulation(self._config, self._federation, runner, server)
            if self._stopping:
                self._simulation.stop()
            for event in self._simulation.events():
                if not isinstance(event, RoundDone):
                    footprint.sample()  # at the start and at the end, as a run may be shorter than its interval
                yield event, footprint.peak_bytes

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._stopping = True
        if self._simulation is not None:
            self._simulation.stop()


def data_of(config: Config) -> Federation:
    """Return a run's data, which serve it and its model.

    Raises:
        ConfigError: they are missing, or they or the model do not serve the scenario.
        RunError: the user's own code for them failed.
    """
    with convert_to_run_error(DEBUGGING):
        federation = build_federation(config)
        check_model(config, federation.shape, federation.classes)
        return federation
