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
from raysim.system.errors import WrongResult
from raysim.system.state import Stateful


@dataclass(frozen=True)
class MemoryUse:
    """The requirements of a method on the memory.

    >>> MemoryUse(policies=("importance",), logits=False).fills
    ('arrival', 'boundary')
    """

    policies: tuple[str, ...] = tuple(POLICIES)
    """The supported values of memory.policy, the method's default first."""
    fills: tuple[str, ...] = ("arrival", "boundary")
    """The supported values of memory.fill, the method's default first."""
    logits: bool = False
    """Whether logits are stored with the samples."""
    per: tuple[str, ...] = ("client", "task")
    """The supported values of memory.per."""
    by_class: bool = False
    """Whether the memory is divided equally among classes. Then it needs room for a sample of each."""


@dataclass(frozen=True)
class Entries:
    """Samples of a memory: positions int64 [n], augmentations int64 [n, 3] or None, logits [n, classes] or None.

    >>> entries = client.memory.sample(5, client.generator("mine"))
    >>> len(entries), client.samples(entries.positions, entries.draws)[0].shape
    (5, torch.Size([5, 6]))
    """

    positions: Tensor
    draws: Tensor | None
    logits: Tensor | None

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class MemoryKind:
    """The settings of every client's memory."""

    policy: str
    """The name of the policy."""
    fill: str = "arrival"
    """When samples are offered: on arrival or at a task boundary."""
    capacity: int = 200
    """The number of slots: in total, or for each task with `per_task`."""
    per_task: bool = False
    keeps_logits: bool = False
    keys: Mapping[str, object] = field(default_factory=dict)
    """The keys of the policy."""


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
        """Offer samples in this order. No sample of the stream is offered twice.

        positions, labels, tasks: int64 [n]; augmentation: int64 [n, 3]; logits: [n, classes].
        """
        for key in np.unique(tasks).tolist() if self.kind.per_task else [0]:
            rows = np.flatnonzero(tasks == key) if self.kind.per_task else np.arange(len(tasks))
            part = self._part(key)
            slots = part.policy.slots(labels[rows], tasks[rows], draws)
            if self.kind.policy not in POLICIES:
                slots = check_slots(part.policy, slots, len(rows), len(part.positions))
            written, chosen = _drop_overwritten(slots)
            index = torch.from_numpy(rows[chosen])
            part.write(
                torch.from_numpy(written),
                positions[index],
                None if augmentation is None else augmentation[index],
                None if logits is None else logits[to_device(index, logits.device)],
            )

    def replace(self, positions: Tensor) -> None:
        """Replace the contents by these samples (int64 positions), as in Re-Fed.

        Raises:
            WrongResult: the memory's policy stores samples itself, and would overwrite these.
        """
        if self.kind.policy != "importance":
            raise WrongResult(
                f"client.memory.replace: found the memory policy {self.kind.policy}, which stores samples itself and "
                "would overwrite these, allowed: importance; "
                'declare memory = MemoryUse(policies=("importance",)) in the method'
            )
        self.parts = {}
        self._part(0).positions = positions

    def refill(self, entries: Entries, labels: Ints, tasks: Ints, draws: np.random.Generator) -> None:
        """Begin anew with these samples, which the policy is offered in order of arrival. Arrays are as in `offer`.

        The policy may leave some out, as a ring does with a class that has more than its part. It knows no others.
        """
        self.parts = {}
        if self.kind.policy == "importance":
            self._part(0).positions = entries.positions  # in the method's order
            return
        order = entries.positions.argsort()
        rows, columns = order.numpy(), (entries.draws, entries.logits)
        augmentation, logits = (None if c is None else c[to_device(order, c.device)] for c in columns)
        self.offer(entries.positions[order], labels[rows], tasks[rows], draws, augmentation, logits)

    def sample(self, count: int, draws: np.random.Generator) -> Entries:
        """Draw up to `count` entries without replacement."""
        chosen = draws.choice(len(self), size=min(count, len(self)), replace=False)
        return self.entries(torch.from_numpy(chosen))

    def entries(self, chosen: Tensor | None = None) -> Entries:
        """Return the entries at these indices (int64 [n], over all parts in order), or all entries."""
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
    """A policy and the slots that it fills, without gaps."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.positions = torch.zeros(0, dtype=torch.int64)
        self.draws: Tensor | None = None
        self.logits: Tensor | None = None

    def write(self, slots: Tensor, positions: Tensor, draws: Tensor | None, logits: Tensor | None) -> None:
        """Store samples in these slots (int64 [n]), which are distinct."""
        if not len(slots):
            return
        rows = max(len(self.positions), int(slots.max()) + 1)
        self.positions = _write_rows(self.positions, rows, slots, positions)
        if draws is not None:
            self.draws = _write_rows(self.draws, rows, slots, draws)
        if logits is not None:
            self.logits = _write_rows(self.logits, rows, to_device(slots, logits.device), logits)


def _drop_overwritten(slots: Ints) -> tuple[Ints, Ints]:
    """Return the slots to write, and the index of the last sample for each."""
    distinct, last_from_end = np.unique(slots[::-1], return_index=True)
    chosen = len(slots) - 1 - last_from_end
    return distinct[distinct >= 0], chosen[distinct >= 0]


def _write_rows(column: Tensor | None, rows: int, slots: Tensor, values: Tensor) -> Tensor:
    grown = values.new_zeros(rows, *values.shape[1:])
    if column is not None:
        grown[: len(column)] = column
    grown[slots] = values
    return grown


def _concatenate(columns: list[Tensor | None]) -> Tensor | None:
    present = [c for c in columns if c is not None]
    return present[0] if len(present) == 1 else torch.cat(present) if present else None
