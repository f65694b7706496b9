"""What carries orders out on hosts: this process, Ray's actors, or nobody in a dry run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from raysim.api.messages import Post
from raysim.config import Config
from raysim.engine.host import ClientHost
from raysim.engine.orders import Order, Reply
from raysim.evaluation.scoring import Chunk, Scores
from raysim.federation.federation import Federation
from raysim.system.device import set_torch


class Runner(Protocol):
    """Carries out orders on hosts: in this process, or on Ray.

    A host does what it is told in the order in which it was told, whoever waits for what.
    """

    def begin(self, order: Order, posts: Sequence[Post]) -> Any:
        """Have every client of the order do it; return a ticket, perhaps before they have."""

    def finish(self, ticket: Any) -> Reply:
        """Wait for an order's end, and return the merged reply."""

    def evaluate(self, parts: Sequence[Chunk], posts: Sequence[Post]) -> Scores:
        """Share the parts out among the hosts, and return the merged counts."""

    def snapshot(self) -> Sequence[Any]:
        """Return every host's records of its clients, or where they are. Nothing may be under way."""


class LocalRunner:
    """Runs every client in this process, one after the other: for pdb, for tests, and as the oracle of Ray's results.

    Args:
        config: the resolved config.
        federation: its data.
        records: the clients' records, where the run goes on from a checkpoint.
    """

    def __init__(self, config: Config, federation: Federation, records: Mapping[int, bytes] | None = None) -> None:
        device = torch.device("cuda" if config.resources.gpus_per_actor else "cpu")
        set_torch(device, config.resources.deterministic)
        self.host = ClientHost(config, federation, range(config.clients.count), device)
        if records is not None:
            self.host.restore(records)

    def begin(self, order: Order, posts: Sequence[Post]) -> Reply:
        """Have every client of the order do it, at once."""
        return self.host.perform(order, posts)

    def finish(self, ticket: Reply) -> Reply:
        """Return what `begin` came to."""
        return ticket

    def evaluate(self, parts: Sequence[Chunk], posts: Sequence[Post]) -> Scores:
        """Count the right answers."""
        return self.host.evaluate(parts, posts)

    def snapshot(self) -> list[dict[int, bytes]]:
        """Return the records of all clients."""
        return [self.host.snapshot()]
