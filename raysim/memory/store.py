"""The stored samples: positions in the stream, augmentation when they were seen, and logits if a method needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raysim.memory.making import POLICIES, check_slots, make_policy
from raysim.memory.policies import Ints, Policy
from raysim.system.device import to_device
from raysim.system.state import Stateful


@dataclass(frozen=True)
class MemoryUse:
    """The requirements of a method on the memory.

    policies, fills: the values of memory.policy and memory.fill that it works with, its default first.
    logits: whether logits are stored with the samples. per: the values of memory.per that it works with. by_class:
    whether it keeps as many of each class, so that how many depends on labels, and there must be room for one of each.
    """

    policies: tuple[str, ...] = tuple(POLICIES)
    fills: tuple[str, ...] = ("arrival", "boundary")
    logits: bool = False
    per: tuple[str, ...] = ("client", "task")
    by_class: bool = False


@dataclass(frozen=True)
class Entries:
    """Samples of a memory: positions int64 [n], augmentations int64 [n, 3] or None, logits [n, classes] or None."""

    positions: Tensor
    draws: Tensor | None
    logits: Tensor | None

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class MemoryKind:
    """The settings of the memory that every client of a run has.

    `policy` is a name, with its `keys`; `fill` says when samples are offered: on arrival or at a task boundary;
    `capacity` is the number of slots, in all or with `per_task` for each task.
    """

    policy: str
    fill: str = "arrival"
    capacity: int = 200
    per_task: bool = False
    keeps_logits: bool = False
    keys: Mapping[str, object] = field(default_factory=dict)


class Memory(Stateful):
    """One client's memory: one part for all its samples, or one for each task."""

    transient = frozenset({"kind"})

    def __init__(self, kind: MemoryKind) -> None:
        self.kind = kind
        self.parts: dict[int, Part] = {}

    def __len__(self) -> int:
        return sum(len(part.positions) for part in self.parts.values())

    @property
    def seen(self) -> int:
        """The number of samples offered so far."""
        return sum(part.policy.seen for part in self.parts.values())

    def offer(
        self,
        positions: Tensor,
        labels: Ints,
        tasks: Ints,
        draws: np.random.Generator,
        augmentation: Tensor | None = None,
        logits: Tensor | None = None,
    ) -> None:
        """Offer samples, in this order; no sample of the stream is offered twice.

        positions, labels, tasks: int64 [n]; augmentation: int64 [n, 3]; logits: [n, classes].
        """
        for key in np.unique(tasks).tolist() if self.kind.per_task else [0]:
            mine = np.flatnonzero(tasks == key) if self.kind.per_task else np.arange(len(tasks))
            part = self._part(key)
            slots = part.policy.slots(labels[mine], tasks[mine], draws)
            if self.kind.policy not in POLICIES:
                slots = check_slots(part.policy, slots, len(mine), len(part.positions))
            kept, chosen = _drop_overwritten(slots)
            index = torch.from_numpy(mine[chosen])
            part.write(
                torch.from_numpy(kept),
                positions[index],
                None if augmentation is None else augmentation[index],
                None if logits is None else logits[to_device(index, logits.device)],
            )

    def replace(self, positions: Tensor) -> None:
        """Store exactly these samples (int64 positions) in place of all others, as Re-Fed does."""
        self.parts = {}
        self._part(0).positions = positions

    def sample(self, count: int, draws: np.random.Generator) -> Entries:
        """Draw up to `count` entries without replacement."""
        chosen = draws.choice(len(self), size=min(count, len(self)), replace=False)
        return self.entries(torch.from_numpy(chosen))

    def entries(self, chosen: Tensor | None = None) -> Entries:
        """Return the entries at these indices (int64 [n], over all parts in order), or all."""
        parts = [part for part in self.parts.values() if len(part.positions)]
        if not parts:
            return Entries(torch.zeros(0, dtype=torch.int64), None, None)
        columns = [_concatenate([getattr(part, name) for part in parts]) for name in ("positions", "draws", "logits")]
        if chosen is not None:
            columns = [None if c is None else c[to_device(chosen, c.device)] for c in columns]
        positions, draws, logits = columns
        assert positions is not None
        return Entries(positions, draws, logits)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a memory of the same kind."""
        self.parts = {}
        for key in state["parts"]:
            self._part(key)
        super().restore(state)

    def _part(self, key: int) -> Part:
        if key not in self.parts:
            self.parts[key] = Part(make_policy(self.kind.policy, self.kind.capacity, self.kind.keys))
        return self.parts[key]


class Part(Stateful):
    """A policy and the slots that it fills, from the first on and without gaps."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.positions = torch.zeros(0, dtype=torch.int64)
        self.draws: Tensor | None = None
        self.logits: Tensor | None = None

    def write(self, slots: Tensor, positions: Tensor, draws: Tensor | None, logits: Tensor | None) -> None:
        """Store samples in these slots (int64 [n]), all different."""
        if not len(slots):
            return
        rows = max(len(self.positions), int(slots.max()) + 1)
        self.positions = _write_rows(self.positions, rows, slots, positions)
        if draws is not None:
            self.draws = _write_rows(self.draws, rows, slots, draws)
        if logits is not None:
            self.logits = _write_rows(self.logits, rows, to_device(slots, logits.device), logits)


def _drop_overwritten(slots: Ints) -> tuple[Ints, Ints]:
    """Return the slots that are written, and the index of the last sample for each."""
    kept, from_behind = np.unique(slots[::-1], return_index=True)
    chosen = len(slots) - 1 - from_behind
    return kept[kept >= 0], chosen[kept >= 0]


def _write_rows(column: Tensor | None, rows: int, slots: Tensor, values: Tensor) -> Tensor:
    grown = values.new_zeros(rows, *values.shape[1:])
    if column is not None:
        grown[: len(column)] = column
    grown[slots] = values
    return grown


def _concatenate(columns: list[Tensor | None]) -> Tensor | None:
    present = [c for c in columns if c is not None]
    return present[0] if len(present) == 1 else torch.cat(present) if present else None
