"""Server sides of methods that can take samples out of what they have learned."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from raysim.api.method import Plan, ServerHalf
from raysim.api.server import Server


class ForgettingServer(ServerHalf, ABC):
    """A server side that follows the requests of `clients.forget` exactly.

    >>> class Server(ForgettingServer):
    ...     def forget(self, server, asked):
    ...         self.total = self.total - (yield Request("forgotten", messages=asked))["total"]
    """

    @abstractmethod
    def forget(self, server: Server, asked: Mapping[int, Tensor]) -> Plan:
        """Exchange messages with clients so that no sample of a request is left in the method's state.

        Called after the request's round, and before the round's evaluation.

        Args:
            server: the server.
            asked: client -> positions (int64 [n]) in its stream that no earlier request had. Clients may be absent.

        >>> def forget(self, server, asked):
        ...     present = {client: asked[client] for client in asked if client in server.present}
        ...     self.total = self.total - (yield Request("forgotten", messages=present))["total"]
        """

    @classmethod
    def remembers(cls, method: Any) -> str | None:
        """Return why the method could not forget exactly with these hyperparameters, and what would work, or None.

        >>> ForgettingServer.remembers(half.method) is None
        True
        """
        return None
