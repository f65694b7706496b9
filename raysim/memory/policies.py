"""Memory policies: which of the samples offered to a memory are stored, and in which slot.

Samples are offered to a policy in order of arrival. Its attributes are numbers, lists and dicts, which checkpoints
store. All random draws come from the generator that it receives.
"""

from bisect import insort
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from raysim.system.state import Stateful

Ints = npt.NDArray[np.int64]


class Policy(Stateful):
    """Chooses slots in a memory of `capacity` slots. This one stores no sample: Re-Fed replaces the memory itself.

    Attributes:
        capacity: the number of slots.
        seen: the number of samples offered so far.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.seen = 0

    def slots(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return the slot of each sample offered, or -1 if it is not stored.

        labels and tasks are int64 [n]; returns int64 [n]. Of several samples with the same slot, the last is kept.
        """
        slots = self.choose(labels, tasks, draws)
        self.seen += len(labels)
        return slots

    def choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Choose the slots for `slots`. A policy overrides this.

        `self.seen` does not count these samples yet. Slots must be filled from 0 on, without gaps.
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
    """Every sample is stored. In a full memory it replaces a random one."""

    def choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return the slots; see Policy."""
        number = self.seen + np.arange(len(labels))
        return np.where(number < self.capacity, number, draws.integers(0, self.capacity, len(labels)))


class _Grouped(Policy):
    """Policy that decides by group (class or task)."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.filled = 0  # slots 0 to filled - 1 are in use

    def _groups(self, labels: Ints, tasks: Ints) -> Ints:
        return labels

    def choose(self, labels: Ints, tasks: Ints, draws: np.random.Generator) -> Ints:
        """Return the slots; see Policy."""
        return np.array(self._choose_slots(self._groups(labels, tasks).tolist(), draws), np.int64)

    def _choose_slots(self, groups: list[int], draws: np.random.Generator) -> list[int]:
        raise AssertionError("a grouped policy overrides this")


class ClassBalanced(_Grouped):
    """All samples of each class, up to a common size of all classes (Chrysakis & Moens, ICML 2020).

    A sample of a class that was never the largest replaces a random sample of the largest class. Any other sample is
    treated as in a reservoir of its class's present size. So all samples of a class are held with equal probability.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.held: dict[int, list[int]] = {}  # the slots of each class, in ascending order
        self.counts: dict[int, int] = {}  # samples offered so far, by class
        self.full: list[int] = []  # the classes that were the largest at some time: not all of their samples are held

    def _choose_slots(self, groups: list[int], draws: np.random.Generator) -> list[int]:
        filled_before, self.filled = self.filled, min(self.filled + len(groups), self.capacity)
        slots = list(range(filled_before, self.filled))
        for group, slot in zip(groups, slots, strict=False):
            self.held.setdefault(group, []).append(slot)
        if slots:
            self.counts = {group: len(slots_of_class) for group, slots_of_class in self.held.items()}
        rest = groups[len(slots) :]
        return [*slots, *self._replace(rest, draws)] if rest else slots

    def _replace(self, groups: list[int], draws: np.random.Generator) -> Iterator[int]:
        """Yield the slots of these samples in a full memory."""
        ranges = self._ranges(groups)
        drawn = draws.integers(np.maximum(ranges, 1)).tolist()
        largest: list[int] = []
        for group, (classes, most_slots), (index, offset) in zip(groups, ranges, drawn, strict=True):
            slots_of_class = self.held.setdefault(group, [])
            if not classes:
                yield slots_of_class[offset] if offset < len(slots_of_class) else -1
                continue
            if not largest:
                largest = sorted(group for group, slots in self.held.items() if len(slots) == most_slots)
            slot = self.held[largest.pop(index)].pop(offset)
            insort(slots_of_class, slot)
            if len(slots_of_class) == most_slots:
                insort(largest, group)
            yield slot

    def _ranges(self, groups: list[int]) -> list[tuple[int, int]]:
        """Return the ranges of each sample's draw: the number of largest classes, and the number of slots of one.

        For a sample of a class in `full`, the ranges are 0 and the number of samples offered of its class. All ranges
        are known before the draws: classes in `full` have the most slots or one less, whatever the draws are.
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
    """The latest samples of each class, with equal numbers of slots per class (ring buffer; Chaudhry, 2019)."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.sizes: dict[int, int] = {}  # slots of each group: a ring from its oldest sample to its newest
        self.newest: dict[int, int] = {}
        self.next = [-1] * capacity  # the next slot in the group's ring; the oldest follows the newest

    def _choose_slots(self, groups: list[int], draws: np.random.Generator) -> list[int]:
        sizes, newest, after = self.sizes, self.newest, self.next
        slots, largest = [], list[int]()
        for group in groups:
            size = sizes.get(group, 0)
            if size and size >= self.capacity // len(sizes):
                slot = newest[group] = after[newest[group]]  # the newest sample replaces the oldest
            elif size or len(sizes) < self.capacity:
                if self.filled < self.capacity:
                    slot = self.filled
                    self.filled += 1
                else:
                    slot = self._take_oldest(largest)
                newest_slot = newest.get(group, slot)
                after[slot], after[newest_slot] = after[newest_slot], slot
                newest[group], sizes[group] = slot, size + 1
            else:
                slot = -1
            slots.append(slot)
        return slots

    def _take_oldest(self, largest: list[int]) -> int:
        """Take the slot of the oldest sample from the largest group. The first of equally large groups loses it.

        `largest` has the remaining groups of the largest size, descending. It is refilled when it is empty: until then
        no other group can reach that size.
        """
        if not largest:
            most = max(self.sizes.values())
            largest += sorted((group for group, size in self.sizes.items() if size == most), reverse=True)
        group = largest.pop()
        newest_slot = self.newest[group]
        slot = self.next[newest_slot]
        self.next[newest_slot] = self.next[slot]
        self.sizes[group] -= 1
        return slot


class TaskRing(ClassRing):
    """The latest samples of each task, with equal numbers of slots per task. Needs a task id."""

    def _groups(self, labels: Ints, tasks: Ints) -> Ints:
        return tasks
