"""Memory policies: which of the samples offered to a memory are stored, and in which slot.

A policy is called in the order in which samples arrive. Its attributes are numbers, lists and dicts, which are
checkpointed with the memory. All random draws come from the generator that it is given.
"""

from bisect import insort
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from raysim.system.state import Stateful

Ints = npt.NDArray[np.int64]


class Policy(Stateful):
    """Chooses slots in one memory of `capacity` slots. This one stores no sample: Re-Fed replaces the memory itself."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0

    def slots(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return the slot of each sample offered, or -1 if it is not stored.

        labels, tasks: int64 [n], of the samples. Returns int64 [n]; of samples with the same slot the last is kept.
        """
        slots = self.choose(labels, tasks, draws)
        self.seen += len(labels)
        return slots

    def choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return what `slots` does, `self.seen` samples having been offered before; a policy overrides this.

        Slots are filled from 0 on, without gaps.
        """
        return np.full(len(labels), -1)


class Reservoir(Policy):
    """Every sample seen so far is held with the same probability, capacity / seen (Vitter, 1985; Fed-A-GEM, Alg. 4)."""

    def choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return the slots; see Policy."""
        number = self.seen + np.arange(len(labels))
        drawn = draws.integers(0, number + 1)
        return np.where(number < self.capacity, number, np.where(drawn < self.capacity, drawn, -1))


class SlidingWindow(Policy):
    """The last `capacity` samples."""

    def choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return the slots; see Policy."""
        return (self.seen + np.arange(len(labels))) % self.capacity


class RandomReplacement(Policy):
    """Every sample is stored; once the memory is full it takes the place of a random one."""

    def choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return the slots; see Policy."""
        number = self.seen + np.arange(len(labels))
        return np.where(number < self.capacity, number, draws.integers(0, self.capacity, len(labels)))


class _Grouped(Policy):
    """Policy that decides by group (class or task)."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.filled = 0  # slots 0 to filled - 1 have been written

    def _groups(self, labels: Ints, tasks: Ints) -> Ints:
        return labels

    def choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return the slots; see Policy."""
        return np.array(self._choose_slots(self._groups(labels, tasks).tolist(), draws), np.int64)

    def _choose_slots(self, groups: list[int], draws: np.random.Generator) -> list[int]:
        raise AssertionError("a grouped policy says how it decides")


class ClassBalanced(_Grouped):
    """As many of each class as there are, up to a size that all classes share (Chrysakis & Moens, ICML 2020).

    A sample of a class that never was the largest replaces a random one of the largest class; any other is held as in
    a reservoir of its class's present size, so that all samples of a class are held with the same probability.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.held: dict[int, list[int]] = {}  # the slots of each class, in ascending order
        self.counts: dict[int, int] = {}  # samples offered so far, by class
        self.full: list[int] = []  # the classes known to have been the largest: not all of their samples are held

    def _choose_slots(self, groups: list[int], draws: np.random.Generator) -> list[int]:
        begin, self.filled = self.filled, min(self.filled + len(groups), self.capacity)
        slots = list(range(begin, self.filled))
        for group, slot in zip(groups, slots, strict=False):
            self.held.setdefault(group, []).append(slot)
        if slots:
            self.counts = {group: len(held) for group, held in self.held.items()}
        others = groups[len(slots) :]
        return [*slots, *self._replace(others, draws)] if others else slots

    def _replace(self, groups: list[int], draws: np.random.Generator) -> Iterator[int]:
        """Yield the slots of these samples, the memory having been filled."""
        ranges = self._ranges(groups)
        drawn = draws.integers(np.maximum(ranges, 1)).tolist()
        largest: list[int] = []
        for group, (classes, most), (which, place) in zip(groups, ranges, drawn, strict=True):
            mine = self.held.setdefault(group, [])
            if not classes:
                yield mine[place] if place < len(mine) else -1
                continue
            if not largest:
                largest = sorted(group for group, slots in self.held.items() if len(slots) == most)
            slot = self.held[largest.pop(which)].pop(place)
            insort(mine, slot)
            if len(mine) == most:
                insort(largest, group)
            yield slot

    def _ranges(self, groups: list[int]) -> list[tuple[int, int]]:
        """Return for each sample among how many largest classes and how many slots of one it draws what it replaces.

        For a sample of a class in `full` these are 0 and the number of its class's samples. All follow from sizes, so
        they are known before a draw: classes in `full` have the most slots or one less, whichever of them lose some.
        """
        sizes = {group: len(slots) for group, slots in self.held.items()}
        most = max(sizes.values())
        largest = {group for group, size in sizes.items() if size == most}
        full, classes, ranges = {*self.full, *largest}, len(largest), []
        for group in groups:
            self.counts[group] = count = self.counts.get(group, 0) + 1
            if group in full:
                ranges.append((0, count))
                continue
            ranges.append((classes, most))
            classes -= 1
            sizes[group] = sizes.get(group, 0) + 1
            if sizes[group] == most:
                full.add(group)
                classes += 1
            elif not classes:
                most -= 1
                full |= {group for group, size in sizes.items() if size == most}
                classes = len(full)
        self.full = sorted(full)
        return ranges


class ClassRing(_Grouped):
    """The latest samples of each class, all classes having the same number of slots (ring buffer; Chaudhry, 2019)."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.sizes: dict[int, int] = {}  # number of slots of each group, a ring from its oldest sample to its newest
        self.newest: dict[int, int] = {}
        self.next = [-1] * capacity  # the slot behind each one in its group's ring; the oldest is behind the newest

    def _choose_slots(self, groups: list[int], draws: np.random.Generator) -> list[int]:
        sizes, newest, after = self.sizes, self.newest, self.next
        slots, largest = [], list[int]()
        for group in groups:
            mine = sizes.get(group, 0)
            if mine and mine >= self.capacity // len(sizes):
                slot = newest[group] = after[newest[group]]  # its oldest sample's, now its newest's
            elif mine or len(sizes) < self.capacity:
                if self.filled < self.capacity:
                    slot = self.filled
                    self.filled += 1
                else:
                    slot = self._take_oldest(largest)
                last = newest.get(group, slot)
                after[slot], after[last] = after[last], slot
                newest[group], sizes[group] = slot, mine + 1
            else:
                slot = -1
            slots.append(slot)
        return slots

    def _take_oldest(self, largest: list[int]) -> int:
        """Return the slot of the oldest sample of the largest group, the first of those as large, which loses it.

        largest: these groups, descending; what other groups gain does not make them as large. Empty if not known.
        """
        if not largest:
            most = max(self.sizes.values())
            largest += sorted((group for group, size in self.sizes.items() if size == most), reverse=True)
        group = largest.pop()
        last = self.newest[group]
        slot = self.next[last]
        self.next[last] = self.next[slot]
        self.sizes[group] -= 1
        return slot


class TaskRing(ClassRing):
    """The latest samples of each task, all tasks having the same number of slots. Needs a task id."""

    def _groups(self, labels: Ints, tasks: Ints) -> Ints:
        return tasks
