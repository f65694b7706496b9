"""What halves have received, from the server or the config, and must leave as it is.

All clients of a process share it. Which clients share a process must not change a run's bits.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from raysim.api.messages import Broadcast
from raysim.api.method import Half, Method
from raysim.system.shared_memory import Snapshot, memory_of, separate


class Received:
    """A host's broadcasts, messages and hyperparameters, each with a copy of what it was on arrival."""

    def __init__(self) -> None:
        self._broadcasts: dict[str, Snapshot] = {}
        self._messages: dict[str, Snapshot] = {}
        self._own_messages: dict[int, Snapshot] = {}  # client -> the message of its exchange, which only it receives
        self._parameters: dict[int, Snapshot] = {}  # client -> its `received`, if hooks have changed what was sent
        self._hyperparameters: dict[str, Snapshot] = {}

    def take_hyperparameters(self, name: str, method: Method) -> None:
        """Watch a method's hyperparameters, which may be lists: its halves share them."""
        self._hyperparameters[name] = Snapshot({part.name: getattr(method, part.name) for part in fields(method)})

    def take_broadcast(self, sent: Broadcast) -> None:
        """Watch a broadcast until a newer version of it arrives."""
        self._broadcasts[sent.name] = Snapshot(sent.value)

    def take_messages(self, messages: Mapping[str, Any]) -> None:
        """Watch an order's messages, by method, in place of the last order's."""
        self._messages = {method: Snapshot(message) for method, message in messages.items()}

    def take_own_message(self, client: int, message: Any) -> None:
        """Watch a message that only this client receives, until `forget`."""
        self._own_messages[client] = Snapshot({client: message})

    def take_parameters(self, client: int, received: Tensor) -> None:
        """Watch a client's `received` [P], which `receive` hooks have changed, until `forget`."""
        self._parameters[client] = Snapshot(received)

    def forget(self, client: int) -> None:
        """Watch a client's `received` and its own message no longer."""
        self._parameters.pop(client, None)
        self._own_messages.pop(client, None)

    def change(self) -> str | None:
        """Return a description of what has changed, or None."""
        if any(watched.change() is not None for watched in self._parameters.values()):
            return "client.received"
        for name, watched in self._broadcasts.items():
            if (path := watched.change()) is not None:
                return "client.received" if (name, path) == ("model", ".parameters") else f"the broadcast {name}{path}"
        messages = (*self._messages.values(), *self._own_messages.values())
        for what, several in (("message", messages), ("hyperparameters", self._hyperparameters.values())):
            for watched in several:
                if (path := watched.change()) is not None:
                    return f"the {what}{path}"
        return None

    def release(self, halves: Iterable[Half]) -> None:
        """Give the halves copies of what they have kept of it.

        A half may change its own attribute in a later round. Other clients of this process, and in a local run the
        server half, must not see that.
        """
        shared: set[int] = set()
        for watched in (*self._broadcasts.values(), *self._messages.values(), *self._own_messages.values()):
            shared |= watched.memory
        for half in halves:
            for name, value in vars(half).items():
                if name not in half.transient and not shared.isdisjoint(memory_of(value)):
                    setattr(half, name, separate(value))
