"""Which samples stay in a memory."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from raysim.memory import POLICIES, Memory, MemoryKind
from raysim.memory.making import make_policy
from raysim.system.errors import WrongResult


def filled(policy: str, labels: list[int], capacity: int, seed: int = 0, batch: int = 5) -> Memory:
    memory, draws = Memory(MemoryKind(policy, capacity=capacity)), np.random.default_rng(seed)
    for start in range(0, len(labels), batch):
        part = np.arange(start, min(start + batch, len(labels)))
        memory.offer(torch.from_numpy(part), np.array(labels)[part], np.zeros(len(part), np.int64), draws)
    return memory


def held(memory: Memory) -> list[int]:
    return sorted(memory.entries().positions.tolist())


def slots_after(policy: str, labels: list[int], capacity: int, runs: int) -> npt.NDArray[np.int64]:
    """The position in each slot after the last offer [runs, capacity]; -1 is an empty slot. All runs share a stream.

    It asks the policy itself, in two unequal parts whose border lies in the filling for some capacities.
    """
    draws, groups = np.random.default_rng(0), np.array(labels)
    parts = (np.arange(7), np.arange(7, len(labels)))
    held = np.full((runs, capacity), -1)
    for run in held:
        one = make_policy(policy, capacity)
        for part in parts:
            slots = one.slots(groups[part], groups[part], draws)
            run[slots[slots >= 0]] = part[slots >= 0]  # of a slot given twice the last has it
    return held


def chi_square(counts: npt.NDArray[np.int64], expected: npt.ArrayLike) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_a_reservoir_holds_every_sample_with_the_same_probability() -> None:
    """Each of n = 50 is held with probability B/n = 0.2.

    Over 20,000 runs the counts have mean 4,000 and variance 4,000 * 0.8 = 3,200, and as every run holds exactly
    10, sum (count - 4,000)^2 / 3,200 * 49/50 is about chi-square with 49 degrees of freedom: above 85.4 with p = 1e-3.
    """
    held = slots_after("reservoir", [0] * 50, 10, 20_000)
    assert (np.diff(np.sort(held)) > 0).all()
    counts = np.bincount(held.ravel(), minlength=50)
    assert chi_square(counts, np.full(50, 4000)) / 0.8 * 49 / 50 < 85.4


def test_a_random_memory_forgets_by_how_much_came_later() -> None:
    """P(held) = (1 - 1/B)^(offers after it, to a full memory): in a slot of B = 10, 0.9^40 for the one that filled it,

    0.1 * 0.9^(49 - i) for sample i >= 10; these 41 probabilities add up to 1. A run counts by one slot, each slot in a
    tenth of 20,000 runs: multinomial counts, so chi-square with 40 degrees of freedom, above 73.4 with p = 1e-3.
    """
    held = slots_after("random", [0] * 50, 10, 20_000)
    slot = np.arange(20_000) % 10
    found = held[np.arange(20_000), slot]
    counts = np.bincount(np.where(found < 10, 9, found) - 9, minlength=41)
    assert (found[found < 10] == slot[found < 10]).all()
    assert chi_square(counts, 20_000 * np.array([0.9**40, *(0.1 * 0.9 ** (49 - i) for i in range(10, 50))])) < 73.4


@pytest.mark.parametrize(
    ("labels", "limits"), [([0] * 24 + [1] * 16, [49.7, 37.7]), ([0, 1, 2] * 20, [43.8] * 3)], ids=["blocks", "in turn"]
)
def test_a_balanced_memory_holds_every_sample_of_a_class_with_the_same_probability(
    labels: list[int], limits: list[float]
) -> None:
    """A class with k of its n samples in 8 slots holds each with probability k/n; k is 4, or of three classes 2 or 3.

    Which k hangs on draws, but not on which samples are held. As in the reservoir's test, over runs with k_1, k_2, ...
    the counts have mean sum k_r/n and variance sum k_r/n (1 - k_r/n), and the sum over the class, times (n - 1)/n, is
    about chi-square with n - 1 degrees of freedom: above 49.7 for n = 24, 43.8 for 20, 37.7 for 16, with p = 1e-3.
    """
    held = slots_after("class_balanced", labels, 8, 4000)
    counts, of = np.bincount(held.ravel(), minlength=len(labels)), np.array(labels)
    for group, limit in enumerate(limits):
        n, share = (of == group).sum(), (of[held] == group).sum(1) / (of == group).sum()
        assert set((share * n).round()) <= ({4} if len(limits) == 2 else {2, 3})
        variance = (share * (1 - share)).sum()
        assert ((counts[of == group] - share.sum()) ** 2 / variance).sum() * (n - 1) / n < limit


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


def test_a_task_ring_holds_the_latest_of_each_task() -> None:
    """Tasks of 6, 5 and 5 samples in 8 slots, whatever their labels.

    Task 0 holds its last 4 when 1 has come, of 8/2 slots each: 2 to 5 beside 7 to 10. Task 2 has room for 8 // 3 = 2,
    taken from the oldest of the larger, of two equals task 0: 2 goes, then of task 1, now the larger, 7; then its own
    go in turn, so that 14 and 15 are left.
    """
    memory, draws = Memory(MemoryKind("task_ring", capacity=8)), np.random.default_rng(0)
    tasks = np.repeat([0, 1, 2], [6, 5, 5])
    for part in np.array_split(np.arange(16), 4):
        memory.offer(torch.from_numpy(part), part % 2, tasks[part], draws)
    assert held(memory) == [3, 4, 5, 8, 9, 10, 14, 15]


def test_importance_holds_only_what_it_is_told() -> None:
    memory = filled("importance", [0] * 10, 4)
    assert len(memory) == 0
    memory.replace(torch.tensor([3, 8]))
    assert held(memory) == [3, 8]


def test_only_importance_lets_a_method_replace_its_contents() -> None:
    """Every other policy begins anew after `replace` and stores into slot 0 first, so it would overwrite 3 and 8."""
    memory = filled("importance", [0] * 10, 4)
    memory.replace(torch.tensor([3, 8]))
    memory.offer(torch.arange(10, 20), np.zeros(10, np.int64), np.zeros(10, np.int64), np.random.default_rng(0))
    assert held(memory) == [3, 8]
    for policy in set(POLICIES) - {"importance"}:
        memory = filled(policy, [0] * 10, 4)
        before = held(memory)
        said = f"^client.memory.replace: found the memory policy {policy}, .* allowed: importance; declare memory = "
        with pytest.raises(WrongResult, match=said):
            memory.replace(torch.tensor([3, 8]))
        assert held(memory) == before


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
