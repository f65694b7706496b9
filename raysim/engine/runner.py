"""What carries orders out on hosts: this process, Ray's actors, or nobody in a dry run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from raysim.api.messages import Post
from raysim.engine.order import Order
from raysim.engine.reply import Reply
from raysim.evaluation.scoring import Chunk, Scores


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
