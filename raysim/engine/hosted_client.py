"""A client as its host runs it: start and end of phases and exchanges, filling the memory, and its state."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysim.api.client import Client
from raysim.api.messages import Delta
from raysim.api.method import ClientHalf, halves_with_hook
from raysim.api.shared import Shared
from raysim.api.step import Step
from raysim.data.custom_stream import UserStream
from raysim.data.pixels import Source
from raysim.engine.local_training import train
from raysim.engine.orders import Phase
from raysim.federation.stream import Stream
from raysim.memory import Memory
from raysim.system.device import to_device
from raysim.system.seeding import Streams


class HostedClient(Client):
    """One client with its methods' halves. Its attributes last from phase to phase, except those in `transient`.

    `stage` is the stage of its present window, `begun` the stage of its last phase. `own` are the parameters, float
    buffers and integer buffers of its own model since it has trained, where that is tested; else empty.
    """

    transient: ClassVar = frozenset(
        {"id", "stream", "data", "shared", "arrived", "finished", "share", "steps", "records", "_streams", "_kept_out"}
        | {"_received"}
    )

    def __init__(
        self,
        number: int,
        stream: Stream,
        data: Source,
        memory: Memory | None,
        shared: Shared,
        halves: Mapping[str, ClientHalf],
    ) -> None:
        super().__init__(number, stream, data, memory, shared)
        self.halves = dict(halves)
        self.stage = -1
        self.begun = -1
        self.own: tuple[Tensor, ...] = ()
        self.offered = torch.zeros(0 if memory is None else len(stream), dtype=torch.bool)

    def begin_phase(self, phase: Phase, share: float) -> None:
        """Begin a training phase: take up the data that arrived, reseed, drop the last phase's random streams."""
        self.take_up(phase.window)
        self.phases += 1
        self.exchanges = {}
        self.round, self.lr, self.share = phase.round, phase.lr, share
        self.trained, self.steps = len(self.arrived), 0
        self.forget()
        self._streams.turn_to("model")
        self._receive()
        stage = self.stream.stage(phase.window)
        if stage != self.begun:
            self.finished = self.stream.span(max(self.begun, 0), stage)
            self.begun = stage
            for half in self.halves.values():
                half.begin_task(self)

    def begin_exchange(self, method: str, share: float) -> None:
        """Begin an exchange of messages outside a training phase; its random streams depend on no other exchange."""
        self.exchanges[method] = self.exchanges.get(method, 0) + 1
        self.share = share
        self.forget(self.exchanges[method])
        self._receive()

    def forget(self, exchange: int = 0) -> None:
        """Drop the state of one phase or exchange; called at its beginning and its end, so that nothing outlives it."""
        self.records, self._received = {}, None
        self._streams = Streams(self.shared.seed, self.id, self.phases, exchange)

    def take_up(self, window: int) -> None:
        """Take up the data that arrived, before a phase or an exchange preceding one; at a boundary fill the memory.

        The fill draws from the stream of the coming phase, so that it does not depend on which method exchanges first.
        """
        self._kept_out = self.shared.kept_out(self.stream, window)
        if window == self.window:
            return
        stage = self.stream.stage(window)
        over = self.stream.span(max(self.stage, 0), stage)
        new_stage, self.stage = stage != self.stage, stage
        self.window = window
        self._see_window()
        if new_stage and self.memory is not None and self.memory.kind.fill == "boundary":
            draws = self.fixed_generator(self.phases + 1, 0, "memory")
            self._remember(over[torch.from_numpy(draws.permutation(len(over)))], draws)

    def local_training(self) -> Delta:
        """Run the local loop with all methods' hooks, and return what it changed."""
        remember = self.offer if self.memory is not None and self.memory.kind.fill == "arrival" else None
        return train(self, [*self.halves.values()], remember)

    def offer(self, step: Step) -> None:
        """Offer a step's new data to the memory: each sample once, after the first step that trained on it."""
        fresh = ~self.offered[step.positions]
        if fresh.any():
            self.offered[step.positions] = True
            which = fresh.nonzero().view(-1)  # indices, as a GPU would first have to count a mask's entries
            logits = None
            if self.memory is not None and self.memory.kind.keeps_logits:
                logits = step.logits.detach().index_select(0, to_device(which, step.logits.device))
            shown = None if step.draws is None else step.draws[which]
            self._remember(step.positions[which], self.generator("memory"), shown, logits)

    def restore(self, state: Mapping[str, object]) -> None:
        """Take over the state that a client of the same run had between two phases."""
        super().restore(state)
        if self.window >= 0:
            self._see_window()

    def _receive(self) -> None:
        """Have the methods put into the model, as it was sent, what stays at this client."""
        halves = halves_with_hook(self.halves.values(), "receive")
        for half in halves:
            half.receive(self)
        self._received = self.model.parameters.clone() if halves else None

    def _see_window(self) -> None:
        self.arrived = self.stream.span(self.window, self.window + 1)
        if isinstance(self.data, UserStream):
            held = [] if self.memory is None else [self.memory.entries().positions]
            self.data.hold(torch.cat([self.arrived, *held]))

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
        self.memory.offer(positions, self.read_labels(rows), tasks, draws, augmentation, logits)

    def read_labels(self, rows: Tensor) -> npt.NDArray[np.int64]:
        """Return the labels (int64 [n]) of rows of the data; zeros where targets are no labels."""
        found = self.data.labels(self.data.held(rows)).numpy()
        return found if found.ndim == 1 and found.dtype == np.int64 else np.zeros(len(rows), np.int64)
