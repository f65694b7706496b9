"""A client in a rehearsal: it knows how many samples, batches and memory entries it would have, not which."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from raysim.api.client import cut_into_batches
from raysim.api.method import Method, overrides
from raysim.config import Config
from raysim.engine.compatibility import choose_memory, make_methods
from raysim.federation.stream import Stream
from raysim.memory import MemoryKind
from raysim.models.flat import FlatModel


@dataclass(frozen=True)
class Role:
    """What all understudies of a run have in common; `parameters` is the length of the model's vector."""

    methods: Mapping[str, Method]
    memory: MemoryKind | None
    parameters: int
    normalises: bool
    batch_size: int
    local_epochs: int


def role_in(config: Config, model: FlatModel) -> Role:
    """Return what all understudies of a run have in common."""
    methods, training = make_methods(config), config.training
    return Role(
        methods,
        choose_memory(config, methods),
        len(model.parameters),
        model.normalises,
        training.batch_size,
        training.local_epochs,
    )


class Understudy:
    """What methods are asked about before a run: one of its clients, in numbers.

    `arrived` counts the samples of its window, `had` those of all windows so far, `finished` what arrived since it last
    began a stage, in stages that are over; see Client. `held` counts its memory's entries; `begins` says whether its
    phase is the first one of a stage.
    """

    def __init__(self, stream: Stream, role: Role) -> None:
        self.role = role
        self.parameters = role.parameters
        self.window = -1
        self.finished = 0
        self.begins = False
        self._stream = stream
        self._stage = -1
        self._begun = -1
        self._stored = 0
        self._offered: dict[int, int] = {}  # by the memory's part
        self._trained = -1  # the last window that steps were taken on
        self._owner = next((m for m in role.methods.values() if overrides(m.Client, "samples")), None)

    @property
    def capacity(self) -> int:
        """The memory's capacity, 0 if there is none."""
        return 0 if self.role.memory is None else self.role.memory.capacity

    @property
    def arrived(self) -> int:
        """The samples of the window."""
        return self._stream.size(self.window)

    @property
    def had(self) -> int:
        """The samples of all windows so far."""
        return self._stream.end(self.window)

    @property
    def held(self) -> int:
        """The entries of the memory."""
        if self.role.memory is None or self.role.memory.policy == "importance":
            return self._stored
        return sum(min(self.role.memory.capacity, offered) for offered in self._offered.values())

    @property
    def epoch(self) -> int:
        """The samples of an epoch of local training."""
        return self.arrived if self._owner is None else self._owner.epoch(self)

    @property
    def batches(self) -> int:
        """The batches of an epoch over the window's samples."""
        return _batches(self.arrived, self.role.batch_size, self.role.normalises)

    def replays(self, count: int) -> bool:
        """Whether a draw of up to `count` entries of the memory gives a batch; see replay.draw_entries."""
        return min(count, self.held) > int(self.role.normalises)

    def take_up(self, window: int) -> None:
        """See Client.take_up."""
        if window == self.window:
            return
        before, self._stage, self.window = self._stage, self._stream.stage(window), window
        memory = self.role.memory
        if memory is not None and memory.fill == "boundary":
            self._offer(max(before, 0), self._stage)

    def enter(self, window: int) -> None:
        """Begin a training phase; see Client.enter."""
        self.take_up(window)
        self.begins = self._stage != self._begun
        if not self.begins:
            return
        self.finished = self._before(self._stage) - self._before(max(self._begun, 0))
        self._begun = self._stage
        for method in self.role.methods.values():
            stored = method.stores(self)
            self._stored = self._stored if stored is None else stored

    def train(self) -> int:
        """Go through a phase's local loop, and return how many steps an epoch takes."""
        role = self.role
        each = _batches(self.epoch, role.batch_size, role.normalises)
        if each and role.memory is not None and role.memory.fill == "arrival":
            self._offer(max(self._trained + 1, self.window), self.window + 1)
            self._trained = self.window
        return each

    def _before(self, window: int) -> int:
        return self._stream.end(window - 1) if window else 0

    def _offer(self, first: int, last: int) -> None:
        if first >= last:
            return
        assert self.role.memory is not None
        for task, count in self._stream.counts_in(first, last).items():
            part = task if self.role.memory.per_task else 0
            self._offered[part] = self._offered.get(part, 0) + count


@functools.cache
def _batches(samples: int, size: int, normalises: bool) -> int:
    return len(cut_into_batches(samples, size, normalises))
