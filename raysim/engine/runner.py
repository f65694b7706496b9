"""Runners, which carry out orders on hosts: in this process, or on Ray actors."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.engine.host import ClientHost
from raysim.engine.memory_counts import count_remembered
from raysim.engine.orders import Order
from raysim.engine.replies import Reply
from raysim.evaluation.scoring import Chunk, Counts, Scores
from raysim.federation.federation import Federation
from raysim.system.device import choose_device, describe_machine
from raysim.system.switches import set_torch


class Runner(Protocol):
    """Interface of runners. Each host processes its orders first in, first out."""

    machines: Mapping[str, str]
    """Each place with hosts, and its kind of machine."""

    def begin(self, order: Order, message: Any, broadcasts: Sequence[Broadcast]) -> Any:
        """Start an order at all its clients, and return a ticket for `finish`. The order may still be in progress."""

    def finish(self, ticket: Any) -> Reply:
        """Wait until the order of this ticket is carried out, and return the merged reply."""

    def evaluate(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Scores:
        """Distribute parts of the test sets over the hosts, and return the merged counts."""

    def evaluate_clients(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Mapping[int, Scores]:
        """Test each client's personalized model on all parts, and return the counts by client."""

    def count_remembered(self) -> Counts:
        """Return how many samples of each task and class all memories hold: int64 [tasks, classes]."""

    def give_sums(self) -> Mapping[int, Reply]:
        """Remove the sums that hosts keep for unfinished server updates, and return them by server update."""

    def snapshot(self) -> Sequence[Any]:
        """Return the clients' saved states for each host, or references to them. No order may be in progress."""


class LocalRunner:
    """Runner of all clients in this process, one after the other, for debugging, tests and small runs.

    Args:
        config: the resolved config.
        federation: the run's data.
        states: the clients' saved states, if the run resumes from a checkpoint.
    """

    def __init__(self, config: Config, federation: Federation, states: Mapping[int, bytes] | None = None) -> None:
        resources = config.resources
        set_torch(choose_device(resources.gpus_per_actor or resources.server_gpus), resources.deterministic)
        device = choose_device(resources.gpus_per_actor)
        self.machines: Mapping[str, str] = {"this process": describe_machine(device)}
        self.host = ClientHost(config, federation, range(config.clients.count), device)
        if states is not None:
            self.host.restore(states)

    def begin(self, order: Order, message: Any, broadcasts: Sequence[Broadcast]) -> Reply:
        """Carry out the order, and return the reply."""
        return self.host.perform(order, message, broadcasts)

    def finish(self, ticket: Reply) -> Reply:
        """Return the reply of `begin`."""
        return ticket

    def evaluate(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Scores:
        """Count the correct predictions."""
        return self.host.evaluate(parts, broadcasts)

    def evaluate_clients(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Mapping[int, Scores]:
        """Count the correct predictions of the personalized models."""
        return self.host.evaluate_clients(parts, broadcasts)

    def count_remembered(self) -> Counts:
        """Count the samples in the memories."""
        return count_remembered(self.host)

    def give_sums(self) -> Mapping[int, Reply]:
        """Return an empty dict: every reply already has its sums."""
        return {}

    def snapshot(self) -> list[dict[int, bytes]]:
        """Return the saved states of all clients."""
        return [self.host.snapshot()]
