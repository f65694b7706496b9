"""Runs of a sweep on Ray: each in a process of its own, as many at a time as there are CPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from raysim.actors import allocator, failures, tensors
from raysim.actors.gpus import hide_gpus
from raysim.config import Config
from raysim.engine.events import Event
from raysim.federation.federation import Federation
from raysim.sweeps.grid import Cell
from raysim.sweeps.room import CPUS_OF_A_RUN
from raysim.sweeps.telling import Begun, Failed, Heard, Told
from raysim.sweeps.whole import Kept, WholeRun, data_of
from raysim.system.errors import ConfigError, RunError

FEWER = "with fewer runs at a time (--jobs) each has more memory"


class RunProcess:
    """Runs all clients of a run. Two threads: one runs, one can be asked to stop."""

    def __init__(self, config: Config, federation: Federation, kept: Kept | None) -> None:
        tensors.register()
        allocator.keep_memory()
        if not config.resources.gpus_per_actor:
            hide_gpus()
        self._run = WholeRun(config, federation, kept)

    def events(self) -> Iterator[tuple[Event, int]]:
        """Run from the first round to the last; with each event the most memory so far, this process's, in bytes."""
        yield from self._run.events()

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._run.stop()


class RayRuns:
    """Carries runs out in actors, some at a time. The data are read here, so that no other node needs their files.

    Args:
        cells: the runs.
        at_once: how many of them.
        kept: says where a run goes on, once it has begun.
    """

    def __init__(self, cells: Sequence[Cell], at_once: int, kept: Callable[[Cell], Kept | None]) -> None:
        tensors.register()
        self._waiting = list(reversed(cells))
        self._at_once = at_once
        self._kept = kept
        self._under_way: dict[Any, tuple[Cell, Any]] = {}  # by the events still to come: the run and its actor
        self._stopping = False

    def told(self) -> Generator[Told, None, None]:
        """Carry all out, and tell what happens; end the actors when left."""
        try:
            while True:
                while self._waiting and len(self._under_way) < self._at_once and not self._stopping:
                    yield from self._begin(self._waiting.pop())
                if not self._under_way:
                    return
                (coming, *_), _ = ray.wait(list(self._under_way))
                yield from self._next(coming)
        finally:
            for _, actor in self._under_way.values():
                ray.kill(actor)

    def stop(self) -> None:
        """Begin no more runs, and let those under way end after the round in progress."""
        self._stopping = True
        for _, actor in list(self._under_way.values()):
            actor.stop.remote()

    def _begin(self, cell: Cell) -> Iterator[Told]:
        began = time.perf_counter()
        try:
            federation = data_of(cell.config)
            if self._stopping:
                return
            yield Begun(cell, federation, began)
            kept = self._kept(cell)
        except (ConfigError, RunError) as error:
            yield Failed(cell, error)
            return
        kind: Any = ray.remote(RunProcess)
        takes = cell.config.resources
        placed = kind.options(
            num_cpus=CPUS_OF_A_RUN, num_gpus=takes.gpus_per_actor, resources=takes.custom, max_concurrency=2
        )
        actor = placed.remote(cell.config, ray.put(federation), ray.put(kept))
        self._under_way[actor.events.options(num_returns="streaming").remote()] = cell, actor
        if self._stopping:
            actor.stop.remote()

    def _next(self, coming: Any) -> Iterator[Told]:
        """Tell the next of a run's events, or its end; who was heard comes after the others then."""
        cell, actor = self._under_way[coming]
        try:
            event, peak_memory_bytes = ray.get(next(coming))
        except (StopIteration, RayError) as end:
            ray.kill(actor)
            del self._under_way[coming]
            if isinstance(end, RayError):
                yield Failed(cell, _failure(end))
        else:
            self._under_way[coming] = self._under_way.pop(coming)
            yield Heard(cell, event, peak_memory_bytes)


def _failure(error: RayError) -> ConfigError | RunError:
    if isinstance(error, failures.DEATHS):
        lost = failures.death("the run's process", error)
        return RunError(f"{lost}; {FEWER}")
    cause = error.cause if isinstance(error, RayTaskError) else error
    return cause if isinstance(cause, ConfigError | RunError) else RunError(f"{type(cause).__name__}: {cause}")
