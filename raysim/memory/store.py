"""What a memory holds: positions in the stream, their augmentation when they were seen, logits if asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raysim.memory.policies import POLICIES, Ints, Policy
from raysim.system.device import sent
from raysim.system.state import Kept

ANY_POLICY = ("reservoir", "class_balanced", "class_ring", "task_ring", "sliding_window", "random", "importance")


@dataclass(frozen=True)
class MemoryUse:
    """What a method wants of the memory: the policies and fills it can live with, its own choice first; and logits.

    `per` is what it lets the capacity be for: a client, a task.
    """

    policies: tuple[str, ...] = ANY_POLICY
    fills: tuple[str, ...] = ("arrival", "boundary")
    logits: bool = False
    per: tuple[str, ...] = ("client", "task")


@dataclass(frozen=True)
class Entries:
    """Some samples of a memory: positions int64 [n], draws int64 [n, 3] or None, logits [n, classes] or None."""

    positions: Tensor
    draws: Tensor | None
    logits: Tensor | None

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class MemoryKind:
    """The memory that every client of a run has.

    `policy` is a name from POLICIES; `fill` says when samples are offered, on arrival or at a boundary; `capacity`
    counts slots in all, or with `per_task` for each task.
    """

    policy: str
    fill: str = "arrival"
    capacity: int = 200
    per_task: bool = False
    keeps_logits: bool = False


class Memory(Kept):
    """One client's memory: one part, or one part for each task."""

    def __init__(self, kind: MemoryKind) -> None:
        self.kind = kind
        self.fill = kind.fill
        self.keeps_logits = kind.keeps_logits
        self.parts: dict[int, Part] = {}

    def __len__(self) -> int:
        return sum(len(part.positions) for part in self.parts.values())

    @property
    def seen(self) -> int:
        """How many samples have been offered."""
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
        """Offer samples, in this order; each sample of the stream is offered once in its life.

        positions int64 [n]; labels and tasks int64 [n]; augmentation int64 [n, 3]; logits [n, classes].
        """
        for key in np.unique(tasks).tolist() if self.kind.per_task else [0]:
            mine = np.flatnonzero(tasks == key) if self.kind.per_task else np.arange(len(tasks))
            part = self._part(key)
            kept, chosen = _last_of_each(part.policy.slots(labels[mine], tasks[mine], draws))
            index = torch.from_numpy(mine[chosen])
            part.write(
                torch.from_numpy(kept),
                positions[index],
                None if augmentation is None else augmentation[index],
                None if logits is None else logits[sent(index, logits.device)],
            )

    def replace(self, positions: Tensor) -> None:
        """Hold exactly these samples (Re-Fed's choice)."""
        self.parts = {}
        self._part(0).positions = positions

    def sample(self, count: int, draws: np.random.Generator) -> Entries:
        """Draw up to `count` entries without replacement."""
        chosen = draws.choice(len(self), size=min(count, len(self)), replace=False)
        return self.entries(torch.from_numpy(chosen))

    def entries(self, chosen: Tensor | None = None) -> Entries:
        """Return the entries at these places (int64, counted over the parts), or all."""
        parts = [part for part in self.parts.values() if len(part.positions)]
        if not parts:
            return Entries(torch.zeros(0, dtype=torch.int64), None, None)
        columns = [_joined([getattr(part, name) for part in parts]) for name in ("positions", "draws", "logits")]
        if chosen is not None:
            columns = [None if c is None else c[sent(chosen, c.device)] for c in columns]
        positions, draws, logits = columns
        assert positions is not None
        return Entries(positions, draws, logits)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: every part's slots, and its policy's attributes."""
        return {"parts": {k: {**vars(part), "policy": dict(vars(part.policy))} for k, part in self.parts.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be what a memory of the same kind was."""
        self.parts = {}
        for key, kept in state["parts"].items():
            part = self._part(key)
            vars(part.policy).update(kept["policy"])
            vars(part).update({name: value for name, value in kept.items() if name != "policy"})

    def _part(self, key: int) -> Part:
        if key not in self.parts:
            self.parts[key] = Part(POLICIES[self.kind.policy](self.kind.capacity))
        return self.parts[key]


class Part:
    """Slots with a policy of their own; a policy fills them from the first on, without gaps."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.positions = torch.zeros(0, dtype=torch.int64)
        self.draws: Tensor | None = None
        self.logits: Tensor | None = None

    def write(self, slots: Tensor, positions: Tensor, draws: Tensor | None, logits: Tensor | None) -> None:
        """Put samples into slots, each named once."""
        if not len(slots):
            return
        rows = max(len(self.positions), int(slots.max()) + 1)
        self.positions = _written(self.positions, rows, slots, positions)
        if draws is not None:
            self.draws = _written(self.draws, rows, slots, draws)
        if logits is not None:
            self.logits = _written(self.logits, rows, sent(slots, logits.device), logits)


def _last_of_each(slots: Ints) -> tuple[Ints, Ints]:
    """Return the slots that are written, and the last sample offered to each."""
    kept, from_behind = np.unique(slots[::-1], return_index=True)
    chosen = len(slots) - 1 - from_behind
    return kept[kept >= 0], chosen[kept >= 0]


def _written(column: Tensor | None, rows: int, slots: Tensor, values: Tensor) -> Tensor:
    grown = values.new_zeros(rows, *values.shape[1:])
    if column is not None:
        grown[: len(column)] = column
    grown[slots] = values
    return grown


def _joined(columns: list[Tensor | None]) -> Tensor | None:
    present = [c for c in columns if c is not None]
    return present[0] if len(present) == 1 else torch.cat(present) if present else None
