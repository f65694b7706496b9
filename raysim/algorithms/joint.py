"""Joint: every client trains on all its data so far, an upper bound for continual methods."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from raysim.api import Client, ClientHalf, Method


@dataclass(frozen=True, kw_only=True)
class Joint(Method):
    """Joint: an epoch runs over all of the client's data so far; the upper bound, with unlimited storage."""

    needs: ClassVar = frozenset({"earlier_logits"})

    class Client(ClientHalf):
        """Keeps all data."""

        def samples(self, client: Client) -> Tensor:
            """Return every position up to the present window."""
            return client.stream.span(0, client.window + 1)
