"""The policies that decide by group, against a search through all slots for every sample."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from raysim.memory import Memory, MemoryKind, Policy
from raysim.memory.making import make_policy
from raysim.system.state import decode, encode

Ints = npt.NDArray[np.int64]

STREAMS = 1000  # for each policy


class Search:
    """One memory that knows nothing but the group in every slot and when it was written, and looks it all up anew."""

    def __init__(self, policy: str, capacity: int) -> None:
        self.choose = self.balanced if policy == "class_balanced" else self.ring
        self.capacity = capacity
        self.holders = [-1] * capacity
        self.ages = [0] * capacity
        self.counts: dict[int, int] = {}
        self.full: set[int] = set()
        self.seen = 0

    def slots(self, groups: Ints, draws: np.random.Generator) -> list[int]:
        slots = []
        for group in groups.tolist():
            held: dict[int, list[int]] = {}
            for slot, holder in enumerate(self.holders):
                held.setdefault(holder, []).append(slot)
            slots.append(slot := self.choose(group, held, draws))
            self.counts[group] = self.counts.get(group, 0) + 1
            if slot >= 0:
                self.holders[slot], self.ages[slot] = group, self.seen
            self.seen += 1
        return slots

    def balanced(self, group: int, held: dict[int, list[int]], draws: np.random.Generator) -> int:
        """Chrysakis & Moens, Algorithm 1, with the victim's class and slot counted in ascending order."""
        if -1 in held:
            return held[-1][0]
        most = max(map(len, held.values()))
        self.full |= {g for g, slots in held.items() if len(slots) == most}
        if group not in self.full:
            largest = [slots for _, slots in sorted(held.items()) if len(slots) == most]
            victims = largest[int(draws.integers(len(largest)))]
            return victims[int(draws.integers(most))]
        mine, drawn = held.get(group, []), int(draws.integers(self.counts.get(group, 0) + 1))
        return mine[drawn] if drawn < len(mine) else -1

    def ring(self, group: int, held: dict[int, list[int]], draws: np.random.Generator) -> int:
        """The group's own oldest once it has its share, else a free slot, else the oldest of the largest other one."""
        mine, free = held.get(group, []), held.get(-1, [])
        groups = len({*held, group} - {-1})
        if len(mine) >= max(1, self.capacity // groups) or (self.capacity < groups and not mine and not free):
            return min(mine, key=self.ages.__getitem__, default=-1)
        if free:
            return free[0]
        largest = max((slots for g, slots in sorted(held.items()) if g != group), key=len)
        return min(largest, key=self.ages.__getitem__)


def a_stream(shape: np.random.Generator) -> list[Ints]:
    """Offers of groups in random order, sorted, with some that are rare, or numbered otherwise than they come."""
    count, length = int(shape.integers(1, 25)), int(shape.integers(0, 120))
    groups = shape.integers(0, count, length)
    groups = [groups, np.sort(groups), np.minimum(groups, shape.permutation(groups)), shape.permutation(count)[groups]][
        int(shape.integers(4))
    ]
    return np.split(groups, np.sort(shape.integers(0, length + 1, int(shape.integers(0, 7)))))


def restored(policy: Policy, name: str) -> Policy:
    other = make_policy(name, policy.capacity)
    vars(other).update(decode(encode(vars(policy))))
    return other


@pytest.mark.parametrize("name", ["class_balanced", "class_ring", "task_ring"])
def test_slots_and_draws_are_those_of_a_search(name: str) -> None:
    """Also with fewer slots than groups, after empty offers, and from what a checkpoint kept between two offers."""
    for number in range(STREAMS):
        shape = np.random.default_rng(number)
        policy = make_policy(name, int(shape.integers(1, 20)))
        search = Search(name, policy.capacity)
        draws, same = np.random.default_rng(number), np.random.default_rng(number)
        for groups in a_stream(shape):
            other = np.zeros_like(groups)
            labels, tasks = (other, groups) if name == "task_ring" else (groups, other)
            assert policy.slots(labels, tasks, draws).tolist() == search.slots(groups, same)
            assert draws.bit_generator.state == same.bit_generator.state
            if shape.random() < 0.1:
                policy = restored(policy, name)


@pytest.mark.parametrize("name", ["class_balanced", "class_ring", "task_ring"])
def test_a_restored_memory_goes_on_as_if_nothing_had_happened(name: str) -> None:
    """One of two memories is written to a checkpoint and read after every offer."""

    def offered(checkpointed: bool) -> list[list[int]]:
        memory, draws, contents = Memory(MemoryKind(name, capacity=9)), np.random.default_rng(5), []
        for part in np.split(np.arange(200), range(6, 200, 6)):
            memory.offer(torch.from_numpy(part), part % 7 % 4, part // 60, draws)
            contents.append(memory.entries().positions.tolist())
            if checkpointed:
                state = decode(encode(memory.state()))
                memory = Memory(MemoryKind(name, capacity=9))
                memory.restore(state)
        return contents

    assert offered(checkpointed=True) == offered(checkpointed=False)
