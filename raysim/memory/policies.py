"""Which samples stay: a policy gives each sample that is offered a slot, or -1 for none.

A policy is asked in the order in which samples arrive and keeps only plain attributes, which are checkpointed with the
memory. All draws come from the generator that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Policy:
    """Decides for one memory of `capacity` slots.

    `labels` and `tasks` are int64 [n], those of the samples that are offered; `slots` int64 [n] is the answer, to be
    written in order: where a slot is given twice, the later sample has it.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0

    def slots(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Give every sample a slot or -1."""
        slots = self._choose(labels, tasks, draws)
        self.seen += len(labels)
        return slots

    def _choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Nothing ever stays here by itself: Re-Fed writes its own choice."""
        return np.full(len(labels), -1)


class Reservoir(Policy):
    """Every sample seen so far is held with the same probability, capacity / seen (Vitter, 1985; Fed-A-GEM, Alg. 4)."""

    def _choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        number = self.seen + np.arange(len(labels))
        drawn = draws.integers(0, number + 1)
        return np.where(number < self.capacity, number, np.where(drawn < self.capacity, drawn, -1))


class SlidingWindow(Policy):
    """The last `capacity` samples."""

    def _choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        return (self.seen + np.arange(len(labels))) % self.capacity


class RandomReplacement(Policy):
    """Every sample is held; once the memory is full it takes the place of a random one."""

    def _choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        number = self.seen + np.arange(len(labels))
        return np.where(number < self.capacity, number, draws.integers(0, self.capacity, len(labels)))


class _Grouped(Policy):
    """Decides group by group (class or task), knowing which group holds each slot."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.holders = [-1] * capacity  # the group in each slot
        self.ages = [0] * capacity  # when it was written
        self.counts: dict[int, int] = {}  # offered so far, by group

    def _groups(self, labels: Ints, tasks: Ints) -> Ints:
        return labels

    def _choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        slots = np.empty(len(labels), np.int64)
        for i, group in enumerate(self._groups(labels, tasks).tolist()):
            slots[i] = slot = self._one(group, draws)
            self.counts[group] = self.counts.get(group, 0) + 1
            if slot >= 0:
                self.holders[slot], self.ages[slot] = group, self.seen + i
        return slots

    def _one(self, group: int, draws: np.random.Generator) -> int:
        raise AssertionError("a grouped policy decides one sample at a time")

    def _held(self) -> dict[int, list[int]]:
        held: dict[int, list[int]] = {}
        for slot, group in enumerate(self.holders):
            held.setdefault(group, []).append(slot)
        return held


class ClassBalanced(_Grouped):
    """As many of each class as there are, up to a size that all classes share (Chrysakis & Moens, ICML 2020).

    A sample of a class that never was the largest takes the place of a random one of the largest; any other is held as
    in a reservoir of its class's present size, so that all samples of a class are held with the same probability.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.full: list[int] = []  # the classes that have been the largest: not all of their samples are held

    def _one(self, group: int, draws: np.random.Generator) -> int:
        held = self._held()
        if -1 in held:
            return held[-1][0]
        largest = max(len(slots) for slots in held.values())
        mine = held.get(group, [])
        self.full = sorted({*self.full, *(g for g, slots in held.items() if len(slots) == largest)})
        if group not in self.full:
            full = [slots for _, slots in sorted(held.items()) if len(slots) == largest]
            victims = full[int(draws.integers(len(full)))]
            return victims[int(draws.integers(largest))]
        drawn = int(draws.integers(self.counts.get(group, 0) + 1))
        return mine[drawn] if drawn < len(mine) else -1


class ClassRing(_Grouped):
    """The latest samples of each class, all classes having the same number of slots (ring buffer; Chaudhry, 2019)."""

    def _one(self, group: int, draws: np.random.Generator) -> int:
        held = self._held()
        mine = held.get(group, [])
        groups = len({g for g in held if g != -1} | {group})
        quota = max(1, self.capacity // groups)
        if len(mine) >= quota or (self.capacity < groups and group not in held and not held.get(-1)):
            return min(mine, key=self.ages.__getitem__) if mine else -1
        if held.get(-1):
            return held[-1][0]
        largest = max((slots for g, slots in sorted(held.items()) if g != group), key=len)
        return min(largest, key=self.ages.__getitem__)


class TaskRing(ClassRing):
    """The latest samples of each task, all tasks having the same number of slots. Needs a task id."""

    def _groups(self, labels: Ints, tasks: Ints) -> Ints:
        return tasks


POLICIES: Mapping[str, Callable[[int], Policy]] = {
    "reservoir": Reservoir,
    "class_balanced": ClassBalanced,
    "class_ring": ClassRing,
    "task_ring": TaskRing,
    "sliding_window": SlidingWindow,
    "random": RandomReplacement,
    "importance": Policy,
}
"""Name in YAML (memory.policy) -> the policy for one memory."""
