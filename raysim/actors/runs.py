"""Runs of a sweep: each is one actor with all its clients. The cluster is replaced if it is lost."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import ray

from raysim.actors import failures, liveness, reservation, workers
from raysim.actors.coordinator import Driven, RemoteRun, waits_after
from raysim.actors.draining import Draining
from raysim.actors.session import Session
from raysim.config import Config
from raysim.engine.events import Event, Notice, RoundDone, StartStep
from raysim.engine.simulation import simulate_here
from raysim.estimate.concurrency import CPUS_OF_A_RUN, gpus_of_a_run
from raysim.federation.federation import Federation
from raysim.records.checkpoints import SavedCheckpoint
from raysim.system.capacity import Capacity
from raysim.system.errors import Lost, RunError, convert_to_run_error
from raysim.system.footprint import Footprint

FEWER = "with fewer runs at a time (--jobs) each has more memory"


class RunProcess(Driven):
    """Actor with all clients of a run. One thread runs the simulation, the other receives calls."""

    def __init__(self, config: Config, federation: Federation, state: tuple[Any, Any]) -> None:
        workers.prepare_actor(gpus_of_a_run(config.resources))
        super().__init__()
        self._paced = bool(config.callbacks)
        self._draining = Draining([reservation.this_node()] if config.resources.address is not None else ())
        self._parts: tuple[Config, Federation, Any, Any] | None = (config, federation, *state)

    def events(self) -> Iterator[tuple[Event, int]]:
        """Run to the last round. Yield each event with this process's peak memory so far, in bytes."""
        with convert_to_run_error(), Footprint() as footprint:
            yield StartStep("evaluating the initial model", computes=True), footprint.peak_bytes
            parts, self._parts = self._parts, None  # otherwise the checkpoint's states are kept for the whole run
            assert parts is not None
            simulation = simulate_here(*parts)
            del parts
            simulation.stopping = self._stopping
            for event in simulation.events():
                if not isinstance(event, RoundDone):
                    footprint.sample()  # at the start and at the end, because a run may be shorter than the interval
                if notice := self._draining.notice():
                    simulation.save()
                    yield Notice(notice), footprint.peak_bytes
                yield event, footprint.peak_bytes
                if waits_after(event, self._paced):
                    self._heard.acquire()


class RunActor(RemoteRun):
    """A run in one actor, as the driver sees it.

    Args:
        config: the resolved config.
        federation: its data.
        saved: the checkpoint to resume from; None starts the run from its beginning.
        note_peak: receives the peak memory of the actor so far, in bytes.
        avoid: the ids of the nodes that are unfit.
    """

    who, advice = "the run's process", FEWER

    def __init__(
        self,
        config: Config,
        federation: Federation,
        saved: SavedCheckpoint | None,
        note_peak: Callable[[int], None],
        avoid: Sequence[str] = (),
    ) -> None:
        liveness.CURRENT.check()
        failures.watch()
        kind: Any = ray.remote(RunProcess)
        takes = config.resources
        placed = kind.options(
            num_cpus=max(CPUS_OF_A_RUN, takes.server_cpus),
            num_gpus=gpus_of_a_run(takes),
            resources=takes.custom,
            max_concurrency=2,
            label_selector=reservation.elsewhere(avoid) if avoid else None,
            **workers.start_here(takes),
        )
        state = (None, None) if saved is None else (saved.server, dict(saved.clients))
        actor = placed.remote(config, ray.put(federation), ray.put(state))
        # A sweep takes a new run's first event before it turns to its other runs, so this event comes at once.
        super().__init__(actor, bool(config.callbacks), [StartStep("starting")])
        self._note_peak = note_peak
        self._patience = takes.patience
        # The time after which the actor is late; infinite once it has started.
        self._latest = time.monotonic() + takes.patience

    @property
    def late(self) -> bool:
        """Whether the actor has not started in time."""
        return time.monotonic() > self._latest

    def _completed(self, sent: tuple[Event, int]) -> Event:
        event, peak = sent
        self._latest = math.inf
        self._note_peak(peak)
        return event

    def _silence(self) -> Iterator[Event]:
        if self.late:
            raise RunError(
                f"the run's process has not started for {self._patience:g} s (resources.patience); run "
                "`ray status` to see whether other programs hold its resources"
            )
        return iter(())


def wait_for_any(attempts: Sequence[RunActor | None]) -> int:
    """Wait for an event, and return its run's index. Runs that have not begun (None) come first, late ones last."""
    if None in attempts:
        return attempts.index(None)
    begun = [attempt for attempt in attempts if attempt is not None]
    coming = [attempt.coming for attempt in begun]
    while True:
        try:
            liveness.CURRENT.check()
        except Lost:  # the cluster has ended: any run reports this at its next event, so take the first
            return 0
        if ready := liveness.wait_a_second(coming):
            return coming.index(ready[0])
        if late := [place for place, attempt in enumerate(begun) if attempt.late]:
            return late[0]


@contextmanager
def lasting_cluster(
    begin: Callable[[Session | None], AbstractContextManager[Capacity]],
    session: Session | None = None,
    on_loss: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Capacity, Callable[[], None]]]:
    """Yield a cluster's capacity, and a function to call after a loss.

    The function waits until the cluster can be reached. A cluster that this process has started is replaced if it has
    ended.

    Args:
        begin: starts or joins the cluster, in the given session or, if it is None, in a new session.
        session: the session of the first cluster.
        on_loss: drops everything that belongs to the old cluster, before it is replaced.
    """
    with ExitStack() as started:
        capacity = started.enter_context(begin(session))

        def reach() -> None:
            if liveness.CURRENT.ended:
                on_loss()
                started.close()
                started.enter_context(begin(None))
            liveness.reach()

        yield capacity, reach
