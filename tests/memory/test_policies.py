"""Which samples stay in a memory."""

import numpy as np
import torch

from raysim.memory import POLICIES, Memory, MemoryKind


def filled(policy: str, labels: list[int], capacity: int, seed: int = 0, batch: int = 5) -> Memory:
    memory, draws = Memory(MemoryKind(policy, capacity=capacity)), np.random.default_rng(seed)
    for start in range(0, len(labels), batch):
        part = np.arange(start, min(start + batch, len(labels)))
        memory.offer(torch.from_numpy(part), np.array(labels)[part], np.zeros(len(part), np.int64), draws)
    return memory


def held(memory: Memory) -> list[int]:
    return sorted(memory.entries().positions.tolist())


def test_a_reservoir_holds_every_sample_with_the_same_probability() -> None:
    """Each of n = 50 is held with probability B/n = 0.2.

    Over 4,000 runs the counts have mean 800 and variance 800 * 0.8 = 640, and as every run holds exactly
    10, sum (count - 800)^2 / 640 * 49/50 is about chi-square with 49 degrees of freedom: above 85.4 with p = 1e-3.
    """
    counts = np.zeros(50)
    for seed in range(4000):
        positions = held(filled("reservoir", [0] * 50, 10, seed))
        assert len(positions) == 10
        counts[positions] += 1
    assert ((counts - 800) ** 2 / 640).sum() * 49 / 50 < 85.4


def test_what_fits_is_held_in_its_order() -> None:
    for policy in ("reservoir", "class_balanced", "class_ring", "task_ring", "sliding_window", "random"):
        assert filled(policy, [0] * 7, 7).entries().positions.tolist() == list(range(7)), policy


def test_a_sliding_window_holds_the_last_ones() -> None:
    assert held(filled("sliding_window", [0] * 23, 4)) == [19, 20, 21, 22]


def test_a_balanced_memory_has_as_many_of_each_class_as_there_are() -> None:
    """40 of class 0, then 3 of class 1 and 20 of class 2, 12 slots: all 3 of class 1; 9 slots are left for 0 and 2."""
    labels = [0] * 40 + [1] * 3 + [2] * 20
    for seed in range(20):
        counts = np.bincount(np.array(labels)[held(filled("class_balanced", labels, 12, seed))])
        assert counts[1] == 3
        assert sorted(counts[[0, 2]]) == [4, 5]


def test_a_class_ring_holds_the_latest_of_each_class() -> None:
    """Two classes of 10 in 6 slots: 3 each, the last three of class 0 (7 to 9) being overwritten oldest first."""
    positions = held(filled("class_ring", [0] * 10 + [1] * 10, 6))
    assert positions == [7, 8, 9, 17, 18, 19]


def test_importance_holds_only_what_it_is_told() -> None:
    memory = filled("importance", [0] * 10, 4)
    assert len(memory) == 0
    memory.replace(torch.tensor([3, 8]))
    assert held(memory) == [3, 8]


def test_each_task_has_slots_of_its_own() -> None:
    memory = Memory(MemoryKind("reservoir", capacity=3, per_task=True))
    positions = torch.arange(10)
    memory.offer(positions, np.zeros(10, np.int64), np.repeat([0, 1], 5), np.random.default_rng(0))
    found = memory.entries().positions
    assert (found < 5).sum() == 3
    assert (found >= 5).sum() == 3


def test_logits_and_draws_stay_with_their_sample() -> None:
    """Sample p has logits (p, p) and draw (p, p, 0), so every entry can be checked against its position."""
    memory, draws = Memory(MemoryKind("reservoir", capacity=5, keeps_logits=True)), np.random.default_rng(1)
    for start in range(0, 60, 6):
        p = torch.arange(start, start + 6)
        augmentation = torch.stack([p, p, 0 * p], 1)
        zeros = np.zeros(6, np.int64)
        memory.offer(p, zeros, zeros, draws, augmentation, p[:, None].expand(6, 2).float())
    entries = memory.sample(3, draws)
    assert len(set(entries.positions.tolist())) == 3
    assert entries.logits is not None
    assert entries.draws is not None
    assert torch.equal(entries.logits[:, 0], entries.positions.float())
    assert torch.equal(entries.draws[:, 1], entries.positions)


def test_every_policy_is_known_by_name() -> None:
    assert set(POLICIES) == {
        "reservoir", "class_balanced", "class_ring", "task_ring", "sliding_window", "random", "importance",
    }  # fmt: skip
