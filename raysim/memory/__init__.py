"""Replay memory of a client: `store` keeps samples with their augmentation and logits,
`policies` chooses which samples are stored, and in which slot."""

from raysim.memory.policies import POLICIES, Policy
from raysim.memory.store import Entries, Memory, MemoryKind, MemoryUse

__all__ = ["POLICIES", "Entries", "Memory", "MemoryKind", "MemoryUse", "Policy"]
