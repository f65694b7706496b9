"""The server as a method sees it: the global model, the clients that are present, and the round's cohort."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

import numpy as np
from torch import Tensor

from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.federation.availability import Progress
from raysim.federation.choice import check_chosen
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel, Weights
from raysim.system import seeding
from raysim.system.errors import RunError
from raysim.system.state import Stateful


class Server(Stateful):
    """The server's state that server halves read and change.

    `parameters` [P] and `buffers` [B] are the global model, in the model's dtype, on the CPU, and `version` counts its
    updates; `round` counts from 1 and is 0 before the first; `cohort` are the clients that take part in this round,
    ascending; `shares` their weights, of sum 1. `network` is an instance of the model, on the CPU, for halves that look
    at its layers or compute with it; its own weights are anyone's, to be loaded before use. `local_bytes` are the bytes
    of the model that are not sent, see Method.
    """

    transient: ClassVar = frozenset({"network", "records", "local_bytes", "_config", "_federation", "_streams"})

    def __init__(self, config: Config, federation: Federation, network: FlatModel) -> None:
        self._config = config
        self._federation = federation
        self.network = network
        weights = network.weights()
        self.parameters, self.buffers, self.integers = weights.parameters, weights.buffers, weights.integers
        self.version = 0
        self.round = 0
        self.cohort: tuple[int, ...] = ()
        self.shares: Mapping[int, float] = {}
        self.records: dict[str, float] = {}
        self.local_bytes = 0
        self._streams = seeding.Streams(config.seed, "server", 0)

    def begin_round(self) -> None:
        """Begin the next round, with random streams of its own; the simulation does."""
        self.round += 1
        self.records = {}
        self._streams = seeding.Streams(self._config.seed, "server", self.round)

    @property
    def computes(self) -> bool:
        """Whether tensors have values; see Client."""
        return not self.parameters.is_meta

    @property
    def task(self) -> int:
        """The task of this round, from 0; if clients are at different tasks, the nominal one."""
        return self._federation.availability.progress(self.round).task

    @property
    def progress(self) -> Progress:
        """How far the run is in this round; asynchronous boundaries tell nobody the task."""
        return self._federation.availability.progress(self.round, self._config.scenario.windows is None)

    @property
    def present(self) -> tuple[int, ...]:
        """The ids of the clients that have data in this round, ascending."""
        return self._federation.availability.present(max(self.round, 1))

    def window(self, client: int) -> int:
        """Return the window of its stream that a client has in this round.

        Raises:
            RunError: the client is not present.
        """
        window = self._federation.availability.window(client, max(self.round, 1))
        if window is None:
            raise RunError(f"client {client} was asked for something, allowed: those with data now, server.present")
        return window

    def size(self, client: int, round: int | None = None) -> int:
        """Return how many samples a client has in a round, by default this one."""
        return self._federation.availability.size(client, round or max(self.round, 1))

    def tasks(self, client: int, round: int | None = None) -> list[int]:
        """Return the tasks of the samples that a client has in a round, by default this one."""
        return self._federation.availability.tasks(client, round or max(self.round, 1))

    def arrived(self, client: int, round: int | None = None) -> int:
        """Return how many samples have reached a client by a round, by default this one."""
        window = self._federation.availability.window(client, round or max(self.round, 1))
        return 0 if window is None else self._federation.streams[client].end(window)

    def earlier_classes(self) -> tuple[int, ...]:
        """Return the classes that clients have had before this task, ascending; all where every task has all."""
        return self._federation.classes_before(self.task)

    def present_classes(self) -> tuple[int, ...]:
        """Return the classes of the tasks that clients have data of in this round, ascending."""
        return self._federation.classes_of({task for client in self.present for task in self.tasks(client)})

    def samples_of(self, task: int) -> int:
        """Return how many training samples of a task, from 0, all clients have together."""
        return sum(stream.samples_of(task) for stream in self._federation.streams)

    def model(self) -> Broadcast:
        """Return the model as the broadcast that every client is sent."""
        weights = Weights(self.parameters, self.buffers, self.integers, local_bytes=self.local_bytes)
        return Broadcast("model", self.version, weights)

    def sample(self) -> list[int]:
        """Draw this round's participants with the config's sampler.

        Raises:
            WrongResult: the sampler chose something else than clients' ids.
        """
        present, wanted = self.present, self._config.participation
        count = wanted.count if wanted.count is not None else max(1, round((wanted.fraction or 1.0) * len(present)))
        if count >= len(present):
            return list(present)
        chosen = wanted.sampler.with_keys()(self, count, seeding.generator(self._config.seed, "cohort", self.round))
        return check_chosen(chosen, present, "participation.sampler", wanted.sampler.function(), least=1)

    def shares_of(self, clients: Sequence[int]) -> dict[int, float]:
        """Return these clients' weights relative to each other, of sum 1, as `aggregation.weights` says."""
        uniform = self._config.aggregation.weights == "uniform"
        sizes = {k: 1 if uniform else self.size(k) for k in clients}
        total = sum(sizes.values())
        return {k: size / total for k, size in sizes.items()}

    def generator(self, purpose: str) -> np.random.Generator:
        """Return this round's generator for a purpose: one object per round, which later calls do not rewind."""
        return self._streams.generator(purpose)

    def rng_scope(self, method: str) -> AbstractContextManager[None]:
        """Have torch draw from the method's own stream of this round, where its last draw in the round left it.

        On this side torch may draw in no other way; a plan may yield inside.
        """
        return self._streams.rng_scope(method)

    def record(self, name: str, value: Tensor | float) -> None:
        """Put a number of this round into rounds.jsonl and TensorBoard."""
        self.records[name] = float(value)
