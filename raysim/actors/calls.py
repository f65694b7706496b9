"""What the runner asks a host for, besides orders."""

from collections.abc import Sequence
from dataclasses import dataclass

from raysim.api.messages import Broadcast
from raysim.engine.host import ClientHost
from raysim.engine.memory_counts import count_remembered
from raysim.evaluation.scoring import Chunk, Counts, Scores


@dataclass(frozen=True)
class Evaluate:
    """The counts of the broadcast model on some parts of the test sets."""

    chunks: Sequence[Chunk]

    def answer(self, host: ClientHost, broadcasts: Sequence[Broadcast]) -> Scores:
        """Return the counts."""
        return host.evaluate(self.chunks, broadcasts)


@dataclass(frozen=True)
class EvaluateClients:
    """The counts of the personalized models of a host's clients on some parts of the test sets."""

    chunks: Sequence[Chunk]

    def answer(self, host: ClientHost, broadcasts: Sequence[Broadcast]) -> dict[int, Scores]:
        """Return the counts by client."""
        return host.evaluate_clients(self.chunks, broadcasts)


@dataclass(frozen=True)
class CountRemembered:
    """The number of samples in the memories of a host's clients."""

    def answer(self, host: ClientHost, broadcasts: Sequence[Broadcast]) -> Counts:
        """Return the counts: int64 [tasks, classes]."""
        return count_remembered(host)


@dataclass(frozen=True)
class AwaitStart:
    """The sign that the host has started."""


@dataclass(frozen=True)
class Give:
    """Clients that move to another host."""

    clients: Sequence[int]


Count = Evaluate | EvaluateClients | CountRemembered
