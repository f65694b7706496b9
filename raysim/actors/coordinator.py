"""The coordinator actor: it runs the simulation beside the hosts and streams its events to the driver."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from typing import Any

import ray
import torch

from raysim import host
from raysim.actors import failures, tensors
from raysim.actors.runner import RayRunner
from raysim.config import Config
from raysim.errors import RunError, told_briefly
from raysim.events import Event
from raysim.resources import Placement
from raysim.simulation import Simulation


class Coordinator:
    """Owns the host actors, which end when it ends. Two threads: one runs, one can be asked to stop."""

    def __init__(self, config: Config, federation: list[Any], placement: Placement) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # today's Ray leaves all GPUs visible to an actor that asked for none
        self._config = config
        self._federation = federation  # a reference in a list, so that Ray does not fetch it here
        self._placement = placement
        self._simulation: Simulation | None = None
        self._stopping = False

    def events(self) -> Iterator[Event]:
        """Run from the first round to the last."""
        tensors.register()
        host.torch_settings(torch.device("cpu"), True)
        (reference,) = self._federation
        with told_briefly():
            runner = RayRunner(self._config, reference, self._placement)
            self._simulation = Simulation(self._config, ray.get(reference), runner)
            if self._stopping:
                self._simulation.stop()
            yield from self._simulation.events()

    def stop(self) -> None:
        """End the run after the round in progress."""
        self._stopping = True
        if self._simulation is not None:
            self._simulation.stop()


class Remote:
    """The driver's end of a coordinator: the events as they come.

    Args:
        config: the resolved config.
        federation: the data; put into the object store once.
        placement: the host actors to start.
    """

    def __init__(self, config: Config, federation: Any, placement: Placement) -> None:
        tensors.register()
        actor: Any = ray.remote(Coordinator)
        self._actor = actor.options(num_cpus=0, max_concurrency=2).remote(config, [ray.put(federation)], placement)

    def events(self) -> Generator[Event, None, None]:
        """Iterate over the events of the run; end the coordinator, and with it the hosts, when left."""
        try:
            for reference in self._actor.events.options(num_returns="streaming").remote():
                yield ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RunError):
                raise error.cause from None
            raise
        except ray.exceptions.RayActorError as error:
            raise failures.death("the coordinator", error) from error
        finally:
            ray.kill(self._actor)

    def stop(self) -> None:
        """Ask for the end after the round in progress."""
        self._actor.stop.remote()
