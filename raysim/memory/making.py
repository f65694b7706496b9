"""Policies by their names, and what one of the user's own must keep to."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from raysim.config.lookup import resolve
from raysim.memory.policies import Ints, Policy
from raysim.system.custom_code import place_of
from raysim.system.errors import WrongResult
from raysim.system.state import ALLOWED, find_foreign

POLICIES: Mapping[str, str] = {
    "reservoir": "raysim.memory.policies:Reservoir",
    "class_balanced": "raysim.memory.policies:ClassBalanced",
    "class_ring": "raysim.memory.policies:ClassRing",
    "task_ring": "raysim.memory.policies:TaskRing",
    "sliding_window": "raysim.memory.policies:SlidingWindow",
    "random": "raysim.memory.policies:RandomReplacement",
    "importance": "raysim.memory.policies:Policy",
}
"""Name in YAML (memory.policy) -> `module:class`: a subclass of Policy, made with the capacity and its keys."""


def make_policy(name: str, capacity: int, keys: Mapping[str, object] = MappingProxyType({})) -> Policy:
    """Return the policy of this name for one memory."""
    made: Policy = resolve("memory policy", name)(capacity, **keys)
    return made


def check_slots(policy: Policy, slots: Ints, offered: int, filled: int) -> Ints:
    """Return the slots that a policy of the user's own gave so many samples, `filled` slots having been written.

    Raises:
        WrongResult: they are not slots, or leave a gap.
    """
    found = np.asarray(slots)
    wrong = _find_wrong_slots(found, policy.capacity, offered, filled)
    if wrong is not None:
        raise WrongResult(f"memory.policy: {place_of(type(policy))} gave {wrong}")
    return found.astype(np.int64)


def _find_wrong_slots(found: Ints, capacity: int, offered: int, filled: int) -> str | None:
    allowed = f"a slot for each, from 0 to {capacity - 1}, or -1"
    if found.shape != (offered,) or found.dtype.kind not in "iu":
        return f"{found.dtype} {list(found.shape)} for {offered} samples, allowed: {allowed}"
    outside = found[(found < -1) | (found >= capacity)]
    if outside.size:
        return f"the slot {outside[0]}, allowed: {allowed}"
    new = np.unique(found[found >= filled])
    if new.size and new[-1] >= filled + new.size:
        gap = next(slot for slot in range(filled, capacity) if slot not in new)
        return f"the slot {new[-1]} while {gap} is empty, allowed: slots filled from 0 on, without gaps"
    return None


def try_policy(name: str, capacity: int, keys: Mapping[str, object]) -> None:
    """Make a policy and offer it three samples, before a run starts. Raises WrongResult."""
    policy, three = make_policy(name, capacity, keys), np.arange(3)
    if not hasattr(policy, "seen"):
        raise WrongResult(
            f"memory.policy: {place_of(type(policy))} lacks what Policy has, call super().__init__(capacity)"
        )
    check_slots(policy, policy.slots(three, np.zeros(3, np.int64), np.random.default_rng(0)), 3, 0)
    for key, value in policy.state().items():
        foreign = find_foreign(value)
        if foreign is not None:
            words = f"holds a {foreign} in {key}, which a checkpoint cannot keep, allowed: {ALLOWED}"
            raise WrongResult(f"memory.policy: {place_of(type(policy))} {words}")
