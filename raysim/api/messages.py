"""Messages between the server and its clients: asks, message, broadcasts and terms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from raysim.api.encoded import Encoded

Reduction = Literal["mean", "sum", "by_client"]


@dataclass(frozen=True)
class Delta:
    """A change of a model, to be added to its parameters [P] and its float buffers [B]."""

    parameters: Tensor
    buffers: Tensor

    @property
    def nbytes(self) -> int:
        """The bytes that a deployment would send."""
        return self.parameters.nbytes + self.buffers.nbytes


@dataclass(frozen=True)
class Broadcast:
    """A value that lasts longer than one message (the model, an anchor, a teacher): sent to a node once per version."""

    name: str
    version: int
    value: Any


@dataclass(frozen=True)
class Term:
    """One client's part of a reply. `weight` None means the client's share of the cohort; all sum to at most 1."""

    value: Tensor | Encoded
    weight: float | None = None


Terms = Mapping[str, Term]


@dataclass(frozen=True)
class Request:
    """A request that a plan yields: do `op` (a public method of this method's client half) at these clients.

    The plan is sent the reduced reply: a mapping from the terms' names to what the method declares in `replies`.
    """

    op: str
    message: Any = None
    to: Literal["cohort", "everyone"] | Sequence[int] = "cohort"
    broadcasts: Sequence[Broadcast] = ()


def count_bytes(value: Any) -> int:
    """Return the bytes of all tensors in a message, at any depth in lists, tuples and mappings, not of other values."""
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    if isinstance(value, Term):
        return count_bytes(value.value)
    if isinstance(value, Mapping):
        return sum(count_bytes(v) for v in value.values())
    if isinstance(value, list | tuple):
        return sum(count_bytes(v) for v in value)
    return 0
