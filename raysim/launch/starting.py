"""Where a run computes: in this process, or on a cluster that is started or joined for it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from raysim.callbacks.callback_list import Named
from raysim.config import Config
from raysim.engine.events import StartStep
from raysim.engine.simulation import simulate_here
from raysim.estimate import placement
from raysim.estimate.memory import estimate_memory
from raysim.estimate.placement import Placement
from raysim.federation.federation import Federation
from raysim.launch.display import RunDisplay
from raysim.launch.recovery import Attempt, Start
from raysim.models.flat import FlatModel
from raysim.records.checkpoints import SavedCheckpoint
from raysim.system.capacity import Capacity

if TYPE_CHECKING:
    from raysim.actors.session import Session


@dataclass(frozen=True)
class Prepared:
    """A run with compatible parts; `places` are those of its hosts, if a cluster is started for it."""

    config: Config
    federation: Federation
    model: FlatModel
    capacity: Capacity
    places: Placement | None
    callbacks: Named


@contextmanager
def start_here(run: Prepared, display: RunDisplay) -> Iterator[Start]:
    """Yield the function that starts the run from a checkpoint in this process."""
    need = estimate_memory(run.config, run.federation, run.model)
    if warning := placement.check_alone(run.config, run.capacity, need):
        display.say(warning)

    def start(saved: SavedCheckpoint | None, apart: bool) -> Attempt:
        server, clients = (None, None) if saved is None else (saved.server, saved.clients)
        return simulate_here(run.config, run.federation, server, clients, run.model)

    yield start


@contextmanager
def start_on_ray(run: Prepared, display: RunDisplay, early: "Session | None") -> Iterator[Start]:
    """Yield the function that starts the run from a checkpoint on a cluster; one started here is replaced if lost."""
    from raysim.actors import compat

    compat.import_ray(loopback=run.config.resources.address is None)
    from raysim.actors import cluster, coordinator, node_capacity, preflight, runs

    config, need = run.config, estimate_memory(run.config, run.federation, run.model)
    if run.places is not None:
        warning = placement.check_memory(config, run.capacity, run.places, need).warning
        if warning:
            display.say(warning)

    def begin(session: "Session | None" = None) -> AbstractContextManager[Capacity]:
        address = config.resources.address
        display.take(StartStep("starting Ray" if address is None else f"joining the cluster at {address}"))
        return cluster.cluster_of([config], run.capacity, display.say, session)

    with runs.lasting_cluster(begin, early) as (there, reach):
        # nodes of a joined cluster may change, so their places are looked for at each start, and here before the run
        # has a directory
        places = run.places if there is run.capacity else None
        nodes = preflight.Preflight(config, need)

        def find_places() -> Placement:
            if config.resources.address is None:
                return placement.place(config, node_capacity.present(), need)
            for line in nodes.ask():
                display.say(f"no host will be on the node {line}")
            with nodes.naming():
                return replace(placement.place(config, nodes.capacity(), need), avoid=[*nodes.unfit])

        if places is None and (warning := find_places().warning):
            display.say(warning)

        def start(saved: SavedCheckpoint | None, apart: bool) -> Attempt:
            reach()
            now = places or find_places()
            return coordinator.Remote(config, run.federation, now, saved, apart, paced=bool(run.callbacks))

        yield start
