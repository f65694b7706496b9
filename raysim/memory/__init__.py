"""A client's replay memory: what it holds, and the policies that decide which samples stay."""

from raysim.memory.policies import POLICIES, Policy
from raysim.memory.store import Entries, Memory, MemoryKind, MemoryUse

__all__ = ["POLICIES", "Entries", "Memory", "MemoryKind", "MemoryUse", "Policy"]
