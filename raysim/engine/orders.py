"""Orders to hosts: an operation, the clients that carry it out, and their round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from torch import Tensor

from raysim.engine.hook_checks import name_methods

LEFT_OUT = "clients.forget"
"""What messages of requests to forget are counted as, in place of a method's name."""


@dataclass(frozen=True)
class RoundInfo:
    """The round's number, window and learning rate, which hold for an order's clients; see `Order.windows`."""

    round: int  # the server's round
    window: int  # the index of the current window of the stream
    lr: float  # the learning rate


@dataclass(frozen=True)
class OwnMessages:
    """The messages of an exchange in which each client receives another one."""

    by_client: Mapping[int, Any]

    def part(self, clients: Iterable[int]) -> OwnMessages:
        """Return the messages of some of the clients."""
        return OwnMessages({client: self.by_client[client] for client in clients})


@dataclass(frozen=True)
class Train:
    """The operation of a phase. Its message is a dict: method -> what the method's `start` hooks receive."""

    returns_in: ClassVar = "finish"
    """The hook that returns the terms to send."""

    def messages(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parts of a message by method."""
        return message

    def describe(self, methods: Iterable[str]) -> str:
        """Name the code that runs, for errors. `methods` are those of the run."""
        return name_methods(methods)


@dataclass(frozen=True)
class Collect:
    """The operation of a phase without steps: a method collects terms. Its message is that of `Train`."""

    method: str
    returns_in: ClassVar = "finish"

    def messages(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parts of a message by method."""
        return message

    def describe(self, methods: Iterable[str]) -> str:
        """Name the code that runs, for errors."""
        return self.method


@dataclass(frozen=True)
class Call:
    """The operation of an exchange: a call of a method's op. Its message is the op's argument, or `OwnMessages`."""

    method: str
    op: str  # the name of the client half's function

    @property
    def returns_in(self) -> str:
        """The function that returns the terms to send."""
        return self.op

    def messages(self, message: Any) -> Mapping[str, Any]:
        """Return the parts of a message by method."""
        return {self.method: message}

    def describe(self, methods: Iterable[str]) -> str:
        """Name the code that runs, for errors."""
        return f"{self.method}.{self.op}"


@dataclass(frozen=True)
class LeaveOut:
    """The operation of a request to forget, where methods train. Its messages are `OwnMessages` of `LeftOut`."""

    returns_in: ClassVar = ""

    def messages(self, message: LeftOut) -> Mapping[str, Any]:
        """Return the parts of a message by method, here by the config's key."""
        return {LEFT_OUT: message.positions}

    def describe(self, methods: Iterable[str]) -> str:
        """Name the code that runs, for errors."""
        return LEFT_OUT


@dataclass(frozen=True)
class LeftOut:
    """What a client leaves out from now on."""

    positions: Tensor
    """The positions (int64 [n]) in its stream."""
    leaves: bool
    """Whether the client takes no further part."""


Phase = Train | Collect
Operation = Phase | Call | LeaveOut


@dataclass(frozen=True)
class Order:
    """An operation that hosts carry out for some of their clients. Its message travels next to it."""

    operation: Operation
    clients: tuple[int, ...]  # the ids of the clients, ascending
    shares: Mapping[int, float]  # client -> its weight in the cohort
    cohort_size: int  # the number of clients in the cohort
    round_info: RoundInfo
    windows: Mapping[int, int] = field(default_factory=dict)  # client -> its window, if `round_info` has another one
    arrived: int | None = None  # how many samples the cohort has received so far; None for uniform weights
    # Only under an asynchronous schedule:
    discount: float = 1.0  # the factor by which the update is scaled for its staleness
    update: int | None = None  # the server update that uses the clients' updates, if any
    # The clients whose orders for the same update are still to come. In an order for one host, the runner leaves at
    # most one of them: a client of this host. The host then keeps its sums until that client's order.
    later: tuple[int, ...] = ()

    def round_info_of(self, client: int) -> RoundInfo:
        """Return the round's info with this client's window."""
        if client not in self.windows:
            return self.round_info
        return replace(self.round_info, window=self.windows[client])
