"""Runners, which carry out orders on hosts: in this process, on Ray's actors, or without computing in a dry run."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.engine.host import ClientHost
from raysim.engine.memory_counts import count_remembered
from raysim.engine.orders import Order, Reply
from raysim.evaluation.scoring import Chunk, Counts, Scores
from raysim.federation.federation import Federation
from raysim.system.device import set_torch


class Runner(Protocol):
    """Interface of what carries out orders on hosts: in this process, or on Ray.

    A host carries out its orders in the order in which they were begun, whichever replies are waited for.
    """

    def begin(self, order: Order, broadcasts: Sequence[Broadcast]) -> Any:
        """Have every client of the order carry it out; return a ticket, possibly before they have done so."""

    def finish(self, ticket: Any) -> Reply:
        """Wait until an order is carried out, and return the merged reply."""

    def evaluate(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Scores:
        """Distribute the parts over the hosts, and return the merged counts."""

    def evaluate_clients(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Mapping[int, Scores]:
        """Have every host test its clients' own models on all parts, and return the counts by client."""

    def count_remembered(self) -> Counts:
        """Return how many samples of each task and class all clients' memories hold: int64 [tasks, classes]."""

    def give_sums(self) -> Mapping[int, Reply]:
        """Return the sums that hosts still hold, by the server update that they become a part of."""

    def snapshot(self) -> Sequence[Any]:
        """Return every host's records of its clients, or references to them. No order may be in progress."""


class LocalRunner:
    """Runner of every client in this process, one after the other: for pdb, for tests, and as reference for Ray's bits.

    Args:
        config: the resolved config.
        federation: its data.
        records: the clients' records, if the run resumes from a checkpoint.
    """

    def __init__(self, config: Config, federation: Federation, records: Mapping[int, bytes] | None = None) -> None:
        device = torch.device("cuda" if config.resources.gpus_per_actor else "cpu")
        set_torch(device, config.resources.deterministic)
        self.host = ClientHost(config, federation, range(config.clients.count), device)
        if records is not None:
            self.host.restore(records)

    def begin(self, order: Order, broadcasts: Sequence[Broadcast]) -> Reply:
        """Have every client of the order carry it out at once, and return the reply."""
        return self.host.perform(order, broadcasts)

    def finish(self, ticket: Reply) -> Reply:
        """Return the reply of `begin`."""
        return ticket

    def evaluate(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Scores:
        """Count the correct predictions."""
        return self.host.evaluate(parts, broadcasts)

    def evaluate_clients(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Mapping[int, Scores]:
        """Count the correct predictions of the clients' own models."""
        return self.host.evaluate_clients(parts, broadcasts)

    def count_remembered(self) -> Counts:
        """Count what the memories hold."""
        return count_remembered(self.host)

    def give_sums(self) -> Mapping[int, Reply]:
        """Return nothing: every reply has its sums."""
        return {}

    def snapshot(self) -> list[dict[int, bytes]]:
        """Return the records of all clients."""
        return [self.host.snapshot()]
