"""Policies by name, and the checks of custom policies."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from raysim.config.lookup import resolve
from raysim.memory.policies import Ints, Policy
from raysim.system.custom_code import place_of
from raysim.system.errors import WrongResult
from raysim.system.state import describe_foreign

POLICIES: Mapping[str, str] = {
    "reservoir": "raysim.memory.policies:Reservoir",
    "class_balanced": "raysim.memory.policies:ClassBalanced",
    "class_ring": "raysim.memory.policies:ClassRing",
    "task_ring": "raysim.memory.policies:TaskRing",
    "sliding_window": "raysim.memory.policies:SlidingWindow",
    "random": "raysim.memory.policies:RandomReplacement",
    "importance": "raysim.memory.policies:Policy",
}
"""Name in YAML (memory.policy) -> `module:class`: a subclass of Policy, constructed with the capacity and its keys."""


def make_policy(name: str, capacity: int, keys: Mapping[str, object] = MappingProxyType({})) -> Policy:
    """Return a new policy of this name."""
    policy: Policy = resolve("memory policy", name)(capacity, **keys)
    return policy


def check_slots(policy: Policy, slots: Ints, offered: int, filled: int) -> Ints:
    """Return a custom policy's slots for the offered samples. `filled` slots are in use.

    Raises:
        WrongResult: the slots are invalid, or leave a gap.
    """
    array = np.asarray(slots)
    problem = _find_problem(array, policy.capacity, offered, filled)
    if problem is not None:
        raise WrongResult(f"memory.policy: {place_of(type(policy))} gave {problem}")
    return array.astype(np.int64)


def _find_problem(slots: Ints, capacity: int, offered: int, filled: int) -> str | None:
    allowed = f"a slot for each, from 0 to {capacity - 1}, or -1"
    if slots.shape != (offered,) or slots.dtype.kind not in "iu":
        return f"{slots.dtype} {list(slots.shape)} for {offered} samples, allowed: {allowed}"
    outside = slots[(slots < -1) | (slots >= capacity)]
    if outside.size:
        return f"the slot {outside[0]}, allowed: {allowed}"
    new = np.unique(slots[slots >= filled])
    if new.size and new[-1] >= filled + new.size:
        gap = next(slot for slot in range(filled, capacity) if slot not in new)
        return f"the slot {new[-1]} while {gap} is empty, allowed: slots filled from 0 on, without gaps"
    return None


def try_policy(name: str, capacity: int, keys: Mapping[str, object]) -> None:
    """Construct a policy and offer it three samples, before a run starts. Raises WrongResult."""
    policy, labels = make_policy(name, capacity, keys), np.arange(3)
    if not hasattr(policy, "seen"):
        raise WrongResult(
            f"memory.policy: {place_of(type(policy))} lacks what Policy has, call super().__init__(capacity)"
        )
    check_slots(policy, policy.slots(labels, np.zeros(3, np.int64), np.random.default_rng(0)), 3, 0)
    for key, value in policy.state().items():
        foreign = describe_foreign(value)
        if foreign is not None:
            problem = f"has an attribute {key} with {foreign}"
            raise WrongResult(f"memory.policy: {place_of(type(policy))} {problem}")
