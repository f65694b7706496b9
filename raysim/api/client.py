"""A client: its stream, its methods' halves, and what a training phase gives them to work with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from raysim.api.messages import Delta
from raysim.api.method import ClientHalf
from raysim.data.user_stream import UserStream
from raysim.engine import local_training
from raysim.federation.stream import Stream
from raysim.models.flat import FlatModel
from raysim.system import seeding
from raysim.system.device import to_device
from raysim.system.state import half_state, restore_half

if TYPE_CHECKING:
    from raysim.data.pixels import Source
    from raysim.engine.host import Host
    from raysim.engine.local_training import Step


LASTING = ("window", "stage", "begun", "phases", "exchanges", "round", "lr", "trained", "_offered")


@dataclass(frozen=True)
class Phase:
    """What the server says of a training phase: its round, the window of data that has arrived, the learning rate."""

    round: int
    window: int
    lr: float


class Client:
    """One client. What lasts between phases is its halves, the window that it has, that window's stage (and `begun`,
    the stage of its last phase), its memory, its count of phases, its exchanges since.

    During a phase: `arrived` (the positions it trains on), `finished` (what arrived since it last began a stage, in
    stages that are over), `share` (its weight in this cohort), `lr`, `trained` (how many samples an epoch runs over),
    `steps` (how many gradient steps were taken).
    """

    def __init__(self, number: int, stream: Stream, halves: Mapping[str, ClientHalf], host: Host) -> None:
        self.id = number
        self.stream = stream
        self.halves = halves
        self.window = -1
        self.stage = -1
        self.begun = -1
        self.phases = 0
        self.exchanges: dict[str, int] = {}
        self._exchange = 0
        self.host = host
        self.arrived = self.finished = torch.zeros(0, dtype=torch.int64)
        self.share = 0.0
        self.trained = self.steps = 0
        self.lr = 0.0
        self.round = 0
        self.records: dict[str, Tensor | float] = {}
        self.memory = host.make_memory()
        self.data: Source | UserStream = host.data_of(number)  # the train split, shared by all; or a stream of its own
        self._offered = torch.zeros(0 if self.memory is None else len(stream), dtype=torch.bool)
        self._aside: dict[str, Tensor] = {}
        self._generators: dict[str, np.random.Generator] = {}
        self._kept_out: Tensor | None = None

    @property
    def model(self) -> FlatModel:
        """The model at hand: one per host, holding this client's parameters during its phase."""
        return self.host.model

    @property
    def received(self) -> Tensor:
        """The parameters [P] that it was sent: one copy per host, read only."""
        parameters: Tensor = self.post("model").parameters
        return parameters

    def post(self, name: str) -> Any:
        """Return what the server posted under this name."""
        return self.host.posts[name].value

    def state(self) -> dict[str, Any]:
        """Return what lasts between phases, as a checkpoint keeps it."""
        return {
            "lasting": {name: getattr(self, name) for name in LASTING},
            "halves": {name: half_state(half) for name, half in self.halves.items()},
            "memory": None if self.memory is None else self.memory.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be as a client of the same run was between two phases."""
        vars(self).update(state["lasting"])
        for name, half in self.halves.items():
            restore_half(half, state["halves"][name])
        if self.memory is not None:
            self.memory.restore(state["memory"])
        if self.window >= 0:
            self._see(self.window)

    def enter(self, phase: Phase, share: float) -> None:
        """Begin a training phase: take up the data that arrived, reseed, forget the last phase's streams."""
        self.take_up(phase.window)
        self.phases += 1
        self.exchanges, self._exchange = {}, 0
        self.round, self.lr, self.share = phase.round, phase.lr, share
        self.trained, self.steps = len(self.arrived), 0
        self.forget()
        seeding.seed_torch(*self._named("model"))
        stage = self.stream.stage(phase.window)
        if stage != self.begun:
            self.finished = self.stream.span(max(self.begun, 0), stage)
            self.begun = stage
            for half in self.halves.values():
                half.begin_task(self)

    def take_up(self, window: int) -> None:
        """See the data that arrived, before a phase or before an exchange that precedes one; fill a boundary's memory.

        The fill draws from the stream of the coming phase, so that it is the same whoever exchanges first.
        """
        self._kept_out = self.host.kept_out(self.stream, window)
        if window == self.window:
            return
        stage = self.stream.stage(window)
        over = self.stream.span(max(self.stage, 0), stage)
        new_stage, self.stage = stage != self.stage, stage
        self.window = window
        self._see(window)
        if new_stage and self.memory is not None and self.memory.fill == "boundary":
            draws = seeding.generator(self.host.config.seed, self.id, self.phases + 1, 0, "memory")
            self._remember(over[torch.from_numpy(draws.permutation(len(over)))], draws)

    def _see(self, window: int) -> None:
        self.arrived = self.stream.span(window, window + 1)
        if isinstance(self.data, UserStream):
            held = [] if self.memory is None else [self.memory.entries().positions]
            self.data.hold(torch.cat([self.arrived, *held]))

    def enter_exchange(self, method: str, share: float) -> None:
        """Begin an exchange of messages outside a training phase; its streams are its own, whatever others exchange."""
        self.exchanges[method] = self._exchange = self.exchanges.get(method, 0) + 1
        self.share = share
        self.forget()

    def forget(self) -> None:
        """Drop what belongs to one phase or exchange: at its beginning, and at its end, so that nothing outlives it."""
        self.records, self._aside, self._generators = {}, {}, {}

    def generator(self, purpose: str) -> np.random.Generator:
        """Return this phase's generator for a purpose; asked again, the same one, where it was left."""
        if purpose not in self._generators:
            self._generators[purpose] = seeding.generator(*self._named(purpose))
        return self._generators[purpose]

    def _named(self, purpose: str) -> tuple[int | str, ...]:
        return (self.host.config.seed, self.id, self.phases, self._exchange, purpose)

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

    def offer(self, step: Step) -> None:
        """Offer a step's new data to the memory: each sample once, after the first step that trained on it."""
        fresh = ~self._offered[step.positions]
        if fresh.any():
            self._offered[step.positions] = True
            which = fresh.nonzero().view(-1)  # places, not a mask: a GPU would have to count one first
            logits = None
            if self.memory is not None and self.memory.keeps_logits:
                logits = step.logits.detach().index_select(0, to_device(which, step.logits.device))
            shown = None if step.draws is None else step.draws[which]
            self._remember(step.positions[which], self.generator("memory"), shown, logits)

    def _remember(
        self,
        positions: Tensor,
        draws: np.random.Generator,
        augmentation: Tensor | None = None,
        logits: Tensor | None = None,
    ) -> None:
        assert self.memory is not None
        rows, task = self.stream.locate(positions)
        tasks = task.numpy() if isinstance(task, Tensor) else np.full(len(positions), task)
        labels = self.data.labels(self.data.held(rows)).numpy()
        self.memory.offer(positions, labels, tasks, draws, augmentation, logits)

    def show(self, positions: Tensor, draws: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the samples at these positions of the stream, x [n, ...] in the model's dtype and y [n]."""
        rows, task = self.stream.locate(positions)
        device = self.model.device
        rows = to_device(self.data.held(rows), device)
        x = self.data.fetch(
            rows,
            to_device(task, device) if isinstance(task, Tensor) else task,
            None if draws is None else to_device(draws, device),
        )
        return x.to(self.model.dtype), self.data.labels(rows)

    def record(self, name: str, value: Tensor | float) -> None:
        """Put a number of this phase into rounds.jsonl and TensorBoard, as the mean over the cohort's clients."""
        self.records[name] = value

    def local_training(self) -> Delta:
        """Run the local loop and return what it changed."""
        return local_training.local_training(self)
