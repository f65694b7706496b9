"""Messages between the server and its clients: deltas, broadcasts, requests and terms."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from torch import Tensor

from raysim.api.encoded import Encoded

Reduction = Literal["mean", "sum", "total", "by_client"]
"""The weighted mean, the sum, the exact sum of int64 or float64 values, or a dict from client id to tensor.

A "sum" is the mean of n clients times n, so its last bits depend on n. A "total" is the same for any n: an int64 total
is exact, and a float64 total is the sum of the values' multiples of 2^-76. Only totals may be int64.
"""


@dataclass(frozen=True)
class Delta:
    """A change of a model, to be added to its parameters [P] and its float buffers [B].

    >>> Delta(client.model.parameters - client.received, torch.zeros(0)).parameters.shape
    torch.Size([59])
    """

    parameters: Tensor
    buffers: Tensor

    @property
    def nbytes(self) -> int:
        """The bytes that a deployment would send.

        >>> delta.nbytes
        236
        """
        return self.parameters.nbytes + self.buffers.nbytes


@dataclass(frozen=True)
class Broadcast:
    """A value that clients keep until a newer version replaces it. Its bytes count once per client and version.

    >>> Broadcast("mine.teacher", version=server.task, value=server.network.weights()).version
    0
    """

    name: str
    """The method's name, or "METHOD.NAME" if the method has several broadcasts."""
    version: int
    """A number that changes with every new value."""
    value: Any
    """Tensors, or objects with `nbytes`, in lists, tuples, dicts and dataclasses."""


@dataclass(frozen=True)
class Term:
    """One client's part of a reply.

    >>> terms = {"samples": Term(torch.tensor(12.0)), "mean": Term(delta.parameters, weight=0.25)}
    """

    value: Tensor | Encoded
    weight: float | None = None
    """The weight in a mean. None uses the client's share. The weights of all clients must sum to at most 1.

    A total has no weights.
    """


Terms = Mapping[str, Term]
GradientRequests = Generator[tuple[Tensor, Tensor], Tensor, Terms]
"""A generator that yields batches x [n, ...] and y [n], and returns terms. Each `yield` returns the gradient [P] of the
mean loss on the batch at the client's model."""


@dataclass(frozen=True)
class Request:
    """A request to clients, yielded by a plan.

    The plan receives the reduced reply: a mapping from each term's name to its value, reduced as `Method.replies`
    declares.

    >>> Request("count", to="everyone", message={"least": 3}).op
    'count'
    """

    op: str
    """The name of the client side's public function to call."""
    message: Any = None
    """The second argument of the op. The first is the client."""
    to: Literal["cohort", "everyone"] | Sequence[int] | None = None
    """The round's cohort, all present clients, or these ids. None means the clients of `messages`, or the cohort."""
    broadcasts: Sequence[Broadcast] = ()
    """Broadcasts to send with the message."""
    messages: Mapping[int, Any] | None = None
    """In place of `message`: each client's own message, by client id. Each client receives its own, in one exchange."""


def count_bytes(value: Any) -> int:
    """Return the bytes of all tensors in a message, at any depth of lists, tuples, mappings and dataclasses."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if is_dataclass(value) and not isinstance(value, type):
        names = ["value"] if isinstance(value, Term) else [part.name for part in fields(value)]  # no weight is sent
        return sum(count_bytes(getattr(value, name)) for name in names)
    if isinstance(value, Mapping):
        return sum(count_bytes(v) for v in value.values())
    return sum(count_bytes(v) for v in value) if isinstance(value, list | tuple) else 0
