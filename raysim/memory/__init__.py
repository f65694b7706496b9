"""Replay memory of a client. `store` keeps samples with their augmentation and logits. `policies` chooses the samples
and their slots. `making` finds a policy by its name."""

from raysim.memory.making import POLICIES
from raysim.memory.policies import Policy
from raysim.memory.store import Entries, Memory, MemoryKind, MemoryUse

__all__ = ["POLICIES", "Entries", "Memory", "MemoryKind", "MemoryUse", "Policy"]
