"""What a host is asked to do: an order, and the training phase that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Phase:
    """A training phase: the server's round, the window of data that has arrived, the learning rate."""

    round: int
    window: int
    lr: float


@dataclass(frozen=True)
class Order:
    """What a host is asked to do for some of its clients.

    `op` is "train" or "METHOD.OP"; `mail` maps methods to their mail for "train", and is the op's mail otherwise;
    `shares` are the clients' weights in the cohort, `cohort` the number of clients in it. `windows` are the windows of
    those that have another than the phase's. Where an update counts by the samples that it was trained on, `arrived` is
    what the whole cohort holds, an upper bound; `discount` is what an update is multiplied by for its age.
    """

    op: str
    clients: tuple[int, ...]
    mail: Any
    shares: Mapping[int, float]
    cohort: int
    phase: Phase
    windows: Mapping[int, int] = field(default_factory=dict)
    arrived: int | None = None
    discount: float = 1.0

    def phase_of(self, client: int) -> Phase:
        """Return the phase as this client has it."""
        return replace(self.phase, window=self.windows.get(client, self.phase.window))
