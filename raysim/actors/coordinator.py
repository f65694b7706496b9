"""The coordinator actor, which runs the simulation on the cluster and streams its events to the driver."""

import threading
from abc import abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import ray

from raysim.actors import failures, liveness
from raysim.actors.draining import Draining
from raysim.actors.reservation import Places, this_node
from raysim.actors.runner import RayRunner, start_hosts
from raysim.actors.stalls import Stalls
from raysim.actors.workers import choose_start, prepare_actor
from raysim.config import Config
from raysim.engine.events import STOPPABLE, Checkpoint, Event, Finished, Notice, Started, StartStep, Waiting
from raysim.engine.simulation import Simulation
from raysim.estimate.placement import Placement
from raysim.federation.federation import Federation
from raysim.records.checkpoints import SavedCheckpoint
from raysim.system.device import choose_device, describe_differences
from raysim.system.errors import Lost, RunError, convert_to_run_error
from raysim.system.switches import set_torch


@dataclass(frozen=True)
class Start:
    """What a coordinator starts with: the hosts and, if the run resumes, the states from a checkpoint.

    References are inside lists, so that Ray does not fetch them.
    """

    config: Config
    federation: list[Any]  # a reference to the data
    hosts: list[Any]  # the host actors
    places: Places  # where the hosts start
    server: bytes | None  # the checkpoint's state of the server
    clients: list[Any]  # for each host: a reference to the checkpoint's states of its clients
    apart: bool  # see RayRunner
    forked: int  # the number of hosts that a fork server is asked to start
    paced: bool = False  # see RemoteRun


def waits_after(event: Event, paced: bool) -> bool:
    """Return whether a run waits after this event until the driver has handled it.

    A run waits until its checkpoint is written, so that a failure costs at most the rounds between two checkpoints. If
    the driver may end the run (`paced`), the run also waits after every round.
    """
    return isinstance(event, Checkpoint) or (paced and isinstance(event, STOPPABLE))


class Driven:
    """Base of the actors that carry out a run. The driver calls these functions while another thread runs `events`."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._heard = threading.Semaphore(0)

    def heard(self, stopping: bool) -> None:
        """Continue the run, or end it if `stopping`. The driver has handled the event after which the run waits."""
        if stopping:
            self.stop()
        self._heard.release()

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._stopping.set()


class Coordinator(Driven):
    """Actor that runs the simulation, and sends orders to the hosts, in one thread. Two other threads receive calls."""

    def __init__(self, start: Start) -> None:
        super().__init__()
        prepare_actor(start.config.resources.server_gpus)
        self._start: Start | None = start
        self._runner: RayRunner | None = None

    def events(self) -> Iterator[Event]:
        """Yield the run's events. Wait for the driver after some of them; see `waits_after`."""
        start = self._start
        assert start is not None
        resources = start.config.resources
        set_torch(choose_device(resources.server_gpus), resources.deterministic)
        failures.watch()
        (reference,) = start.federation
        with convert_to_run_error():
            federation = ray.get(reference)
            del reference
            placement = start.places.placement
            self._runner = runner = RayRunner(start.config, federation.streams, start.hosts, placement, start.apart)
            for step in runner.start(start.places, start.clients):
                yield StartStep(step)
            simulation = Simulation(start.config, federation, runner, start.server)
            simulation.stopping = self._stopping
            joined, paced = start.config.resources.address is not None, start.paced
            draining = Draining({this_node(), *start.places.nodes()} if joined else ())
            if alone := start.forked - runner.forked:
                spawned = f"{alone} of {len(start.hosts)} hosts were not forked, because no fork server answered them"
                if start.config.resources.workers == "forked":
                    raise RunError(f"resources.workers: found forked, but {spawned}; allowed: auto or spawned")
                yield Notice(spawned)
            if start.server is None:
                yield StartStep("evaluating the initial model", computes=True)
            self._start = None
            del start  # otherwise the object store keeps the clients' states for the whole run
            if notice := describe_differences(runner.machines):
                yield Notice(notice)
            for event in simulation.events():
                if not isinstance(event, Checkpoint):
                    if notice := draining.notice():
                        simulation.save()
                        yield Notice(notice)
                    yield _with_actors(event, runner, joined)
                    if waits_after(event, paced):
                        self._heard.acquire()
                    continue
                states = list(event.clients)
                yield replace(event, clients=states, peaks=runner.peaks() if joined else ())
                self._heard.acquire()
                states.clear()  # Ray holds this event until the next one, so the object store would keep the states
                del event

    def unanswered(self) -> list[int]:
        """Return the numbers of the hosts that have not answered all their calls."""
        return self._runner.unanswered() if self._runner else []


def _with_actors(event: Event, runner: RayRunner, joined: bool) -> Event:
    """Add to an event what the simulation does not know: the number of actors and their peak memory."""
    if isinstance(event, Started):
        return replace(event, actors=1 + runner.placement.actors)
    if isinstance(event, Finished) and joined:
        with suppress(Lost):  # the run no longer needs a host that dies now
            return replace(event, peaks=runner.peaks())
    return event


class RemoteRun:
    """A run in an actor, as the driver sees it.

    Args:
        actor: the actor, which is Driven.
        paced: whether a round starts only after the driver has handled the previous round. `stop` then prevents the
            next round.
        first: events to report before those of the actor.
    """

    who = "the coordinator"  # the name of the actor in errors
    advice = failures.LEAST_MEMORY  # what to do if the actor was lost

    def __init__(self, actor: Any, paced: bool, first: Sequence[Event] = ()) -> None:
        self._actor, self._paced, self._first = actor, paced, first
        self._stopping = False
        self._waits = False  # whether the actor waits until the driver has handled the last event
        # The actor's events, as a generator of references. `ray.wait` accepts it, and waits for the next event.
        self.coming = actor.events.options(num_returns="streaming").remote()

    def events(self) -> Generator[Event, None, None]:
        """Iterate over the events of the run; closing the iterator ends its actors. Raises Lost."""
        try:
            with failures.explain_ray_errors(lambda: self.who):
                yield from self._first
                for reference in liveness.arriving(self.coming):
                    if reference is None:
                        yield from self._silence()
                        continue
                    event = self._completed(ray.get(reference))
                    self._waits, last = waits_after(event, self._paced), isinstance(event, Finished)
                    passed_on = [event]
                    del reference, event  # otherwise the object store keeps a checkpoint until the next event
                    yield passed_on.pop()
                    if last:
                        return
            raise Lost(self.who, "its events ended, but the run was not finished", self.advice)
        except Lost as lost:
            liveness.settle()
            # Ask here, too. The coordinator does not see a kill that happened before it called `failures.watch`.
            killed = failures.killed_for_memory("it") if lost.how == failures.ENDED else None
            raise Lost(lost.who, killed or lost.how, lost.advice and self.advice) from None
        finally:
            liveness.ask(lambda: ray.kill(self._actor))
            self._give_back()

    def stop(self) -> None:
        """Ask the run to end after the round in progress."""
        self._stopping = True
        self._actor.stop.remote()

    def heard(self) -> None:
        """Have the run continue if it waits for the driver, or end after a `stop`."""
        if self._waits:
            self._waits = False
            self._actor.heard.remote(self._stopping)

    @abstractmethod
    def _completed(self, sent: Any) -> Event:
        """Return the event that an item of the actor's stream contains."""

    def _silence(self) -> Iterator[Event]:
        """Yield the events to report after a second without an event from the actor."""
        return iter(())

    def _give_back(self) -> None:
        """Release the resources of the run's actors."""


class Remote(RemoteRun):
    """A coordinator with its hosts, as the driver sees it.

    The driver stores the data once for all hosts, and keeps no reference to the data. If the driver still owned a
    stored object when its raylet ends, Ray (2.60) would end the driver, too.

    Args:
        config: the resolved config.
        federation: the data.
        placement: the host actors to start.
        saved: the checkpoint to resume from; None starts the run from its beginning.
        apart: see RayRunner.
        paced: see RemoteRun.
    """

    def __init__(
        self,
        config: Config,
        federation: Federation,
        placement: Placement,
        saved: SavedCheckpoint | None,
        apart: bool,
        paced: bool = False,
    ) -> None:
        failures.watch()
        clients = [] if saved is None else [ray.put({k: saved.clients[k] for k in own}) for own in placement.clients]
        places = Places(placement)
        try:
            (beside, *on_hosts), notice = choose_start(config.resources, [this_node(), *places.nodes()])
        except BaseException:
            places.give_back()
            raise
        data = ray.put(federation)
        hosts = start_hosts(config, data, places, on_hosts)
        server, forked = None if saved is None else saved.server, sum(map(bool, on_hosts))
        start = Start(config, [data], hosts, places, server, clients, apart, forked, paced)
        self._places, self._stalls = places, Stalls(places.nodes(), config.resources.patience)
        kind: Any = ray.remote(Coordinator)
        actor = kind.options(**places.of_coordinator(), **beside, max_concurrency=3).remote(start)
        super().__init__(actor, paced, [Notice(notice)] if notice else [])

    def _completed(self, sent: Event) -> Event:
        self._stalls.heard(sent)
        return replace(sent, clients=_fetched(sent.clients)) if isinstance(sent, Checkpoint) else sent

    def _silence(self) -> Iterator[Event]:
        if line := self._stalls.line(self._actor):
            yield Waiting(line)

    def _give_back(self) -> None:
        self._places.give_back()


def _fetched(references: Iterable[Any]) -> Iterator[Mapping[int, bytes]]:
    """Yield the clients' states of each host, fetching one host at a time."""
    for reference in references:
        with failures.explain_ray_errors(lambda: "a host"):
            yield ray.get(liveness.wait([reference]))
