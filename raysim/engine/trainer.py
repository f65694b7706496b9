"""The interface between a host and its mode of local training."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from raysim.engine.hosted_client import HostedClient
from raysim.engine.orders import Call
from raysim.engine.work import Work


class Trainer(Protocol):
    """A mode of local training: how a host carries out an order for its clients.

    `choose_trainer` selects it from the config. What is the same in all modes is in `Phases`.
    """

    def divide(self, clients: list[HostedClient], work: Work) -> Iterator[Sequence[HostedClient]]:
        """Yield the order's clients in groups. The host times each group, and names its clients in errors."""

    def train(self, clients: Sequence[HostedClient], work: Work) -> None:
        """Train the clients of a group, and add their updates, terms and records to the reply."""

    def exchange(self, clients: Sequence[HostedClient], call: Call, work: Work) -> None:
        """Call an op of the clients of a group, and add the terms that it returns to the reply."""
