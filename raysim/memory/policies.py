"""Memory policies: which of the samples offered to a memory are stored, and in which slot.

A policy is called in the order in which samples arrive. Its attributes are numbers, lists and dicts, which are
checkpointed with the memory. All random draws come from the generator that it is given.
"""

from bisect import insort
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from raysim.system.state import Kept

Ints = npt.NDArray[np.int64]


class Policy(Kept):
    """Chooses slots in one memory of `capacity` slots. This one stores no sample: Re-Fed replaces the memory itself."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0

    def slots(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return the slot of each sample offered, or -1 if it is not stored.

        labels, tasks: int64 [n], of the samples. Returns int64 [n]; of samples with the same slot the last is kept.
        """
        slots = self._choose(labels, tasks, draws)
        self.seen += len(labels)
        return slots

    def _choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
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
    """Every sample is stored; once the memory is full it takes the place of a random one."""

    def _choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        number = self.seen + np.arange(len(labels))
        return np.where(number < self.capacity, number, draws.integers(0, self.capacity, len(labels)))


class _Grouped(Policy):
    """Policy that decides sample by sample, by group (class or task)."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.filled = 0  # slots 0 to filled - 1 have been written

    def _groups(self, labels: Ints, tasks: Ints) -> Ints:
        return labels

    def _choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        groups = self._groups(labels, tasks).tolist()
        return np.array([self._choose_slot(group, draws) for group in groups], np.int64)

    def _choose_slot(self, group: int, draws: np.random.Generator) -> int:
        raise AssertionError("a grouped policy decides one sample at a time")

    def _fill_slot(self) -> int:
        """Return the first slot that has not been written."""
        self.filled += 1
        return self.filled - 1


class ClassBalanced(_Grouped):
    """As many of each class as there are, up to a size that all classes share (Chrysakis & Moens, ICML 2020).

    A sample of a class that never was the largest replaces a random one of the largest class; any other is held as in
    a reservoir of its class's present size, so that all samples of a class are held with the same probability.
    """

    made_again = frozenset({"largest"})

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.held: dict[int, list[int]] = {}  # the slots of each class, in ascending order
        self.counts: dict[int, int] = {}  # samples offered so far, by class
        self.full: list[int] = []  # the classes known to have been the largest: not all of their samples are held
        self.largest: list[int] = []  # the classes that have the most slots, ascending; empty if they are not known

    def _choose_slot(self, group: int, draws: np.random.Generator) -> int:
        mine = self.held.setdefault(group, [])
        self.counts[group] = self.counts.get(group, 0) + 1
        if self.filled < self.capacity:
            mine.append(self._fill_slot())
            return mine[-1]
        if group not in self.full:
            if not self.largest:  # sizes change only below, so no class becomes the largest unnoticed
                most = max(map(len, self.held.values()))
                self.largest = sorted(group for group, slots in self.held.items() if len(slots) == most)
                self.full = sorted({*self.full, *self.largest})
            if group not in self.largest:
                victims = self.held[self.largest.pop(int(draws.integers(len(self.largest))))]
                if len(mine) + 1 == len(victims):
                    insort(self.largest, group)
                    insort(self.full, group)
                slot = victims.pop(int(draws.integers(len(victims))))
                insort(mine, slot)
                return slot
        drawn = int(draws.integers(self.counts[group]))
        return mine[drawn] if drawn < len(mine) else -1


class ClassRing(_Grouped):
    """The latest samples of each class, all classes having the same number of slots (ring buffer; Chaudhry, 2019)."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.sizes: dict[int, int] = {}  # number of slots of each group, a queue from its oldest sample to its newest
        self.oldest: dict[int, int] = {}
        self.newest: dict[int, int] = {}
        self.next = [-1] * capacity  # the slot behind each one in its group's queue

    def _choose_slot(self, group: int, draws: np.random.Generator) -> int:
        mine = self.sizes.get(group, 0)
        groups = len(self.sizes) + (mine == 0)
        if mine >= max(1, self.capacity // groups):
            slot = self._pop_oldest(group)
        elif self.filled < self.capacity:
            slot = self._fill_slot()
        elif groups <= self.capacity:
            slot = self._pop_oldest(max(sorted(self.sizes), key=self.sizes.__getitem__))
        else:
            return -1
        self._append(group, slot)
        return slot

    def _pop_oldest(self, group: int) -> int:
        slot = self.oldest[group]
        self.oldest[group] = self.next[slot]
        self.sizes[group] -= 1
        return slot

    def _append(self, group: int, slot: int) -> None:
        size = self.sizes.get(group, 0)
        if size:
            self.next[self.newest[group]] = slot
        else:
            self.oldest[group] = slot
        self.newest[group], self.sizes[group] = slot, size + 1


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
