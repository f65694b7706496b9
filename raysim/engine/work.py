"""An order while a host carries it out."""

from dataclasses import dataclass
from typing import Any

from raysim.engine.collection import Collection
from raysim.engine.hosted_client import HostedClient
from raysim.engine.orders import Order, OwnMessages, RoundInfo


@dataclass(frozen=True)
class Work:
    """An order, its message on the host's device, and what the host has collected for the reply."""

    order: Order
    message: Any
    collected: Collection

    def info(self, client: HostedClient) -> RoundInfo:
        """Return the round's info with the client's window."""
        return self.order.round_info_of(client.id)

    def message_of(self, client: HostedClient) -> Any:
        """Return the message that the client receives."""
        return self.message.by_client[client.id] if isinstance(self.message, OwnMessages) else self.message

    def share(self, client: HostedClient) -> float:
        """Return the client's weight in the cohort."""
        return self.order.shares[client.id]

    def weight(self, client: HostedClient) -> float:
        """Return the weight of the client's update. The client must have trained."""
        order = self.order
        share = order.shares[client.id] if order.arrived is None else client.trained / order.arrived
        return share * order.discount

    def where(self, client: HostedClient) -> str:
        """Return the prefix of the error message for a value from the client that is not finite."""
        order = self.order
        methods = order.operation.describe(client.halves)
        return f"client {client.id} diverged in round {order.round_info.round} ({methods})"
