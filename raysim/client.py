"""A client: its stream, its methods' halves, and what a training phase gives them to work with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from raysim import seeding, training
from raysim.messages import Delta
from raysim.method import ClientHalf
from raysim.stream import Stream
from raysim.vector import FlatModel

if TYPE_CHECKING:
    from raysim.data.pixels import Source
    from raysim.host import Host


@dataclass(frozen=True)
class Phase:
    """What the server says of a training phase: its round, the window of data that has arrived, the learning rate."""

    round: int
    window: int
    lr: float


class Client:
    """One client. What lasts between phases is its halves, its window, its counts of phases and of exchanges since.

    During a phase: `arrived` (the positions it trains on), `finished` (those that arrived since it last ran and are no
    longer new), `received` (the parameters [P] it was sent), `share` (its weight in this cohort), `lr`.
    """

    def __init__(self, number: int, stream: Stream, halves: Mapping[str, ClientHalf], host: Host) -> None:
        self.id = number
        self.stream = stream
        self.halves = halves
        self.window = -1
        self.phases = 0
        self.exchanges = 0
        self.host = host
        self.arrived = self.finished = torch.zeros(0, dtype=torch.int64)
        self.received = host.model.parameters[:0]
        self.share = 0.0
        self.lr = 0.0
        self.round = 0
        self.records: dict[str, Tensor | float] = {}
        self._aside: dict[str, Tensor] = {}
        self._kept_out: Tensor | None = None

    @property
    def model(self) -> FlatModel:
        """The model at hand: one per host, holding this client's parameters during its phase."""
        return self.host.model

    @property
    def data(self) -> Source:
        """The train split, shared by all clients."""
        return self.host.train

    def post(self, name: str) -> Any:
        """Return what the server posted under this name."""
        return self.host.posts[name].value

    def enter(self, phase: Phase, share: float) -> None:
        """Begin a training phase: take up the data that arrived, reseed, forget the last phase's streams."""
        changed = phase.window != self.window
        if changed:
            self.finished = self.stream.span(max(self.window, 0), phase.window)
            self.window = phase.window
            self.arrived = self.stream.span(phase.window, phase.window + 1)
        self.phases += 1
        self.exchanges = 0
        self.round, self.lr, self.share = phase.round, phase.lr, share
        self.received = self.model.parameters.clone()
        self.records, self._aside = {}, {}
        self._kept_out = self.host.kept_out(phase.window)
        seeding.seed_torch(*self._named("model"))
        if changed:
            for half in self.halves.values():
                half.begin_task(self)

    def enter_exchange(self, share: float) -> None:
        """Begin an exchange of messages outside a training phase; its streams are its own."""
        self.exchanges += 1
        self.share = share
        self._aside = {}

    def generator(self, purpose: str) -> np.random.Generator:
        """Return a generator at the start of this client's and phase's stream for a purpose."""
        return seeding.generator(*self._named(purpose))

    def _named(self, purpose: str) -> tuple[int | str, ...]:
        return (self.host.config.seed, self.id, self.phases, self.exchanges, purpose)

    @contextmanager
    def aside(self, method: str) -> Iterator[None]:
        """Draw from the method's own stream, not the model's: for every forward pass other than the step's own.

        Without it a second forward pass, even one of weight 0, would move the next dropout mask.
        """
        source = seeding.default_generator(self.model.device)
        own = source.get_state()
        if method in self._aside:
            source.set_state(self._aside[method])
        else:
            source.manual_seed(seeding.hashed(*self._named(method), bits=64))
        try:
            yield
        finally:
            self._aside[method] = source.get_state()
            source.set_state(own)

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        """Return the mean cross-entropy over the classes that `training.logits` admits."""
        if self._kept_out is not None:
            logits = logits.masked_fill(self._kept_out, -torch.inf)
        return nn.functional.cross_entropy(logits, y)

    def record(self, name: str, value: Tensor | float) -> None:
        """Put a number of this phase into rounds.jsonl and TensorBoard, as the mean over the cohort's clients."""
        self.records[name] = value

    def local_training(self) -> Delta:
        """Run the local loop and return what it changed."""
        return training.local_training(self)
