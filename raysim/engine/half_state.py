"""Whether a method's half has learned anything since its start."""

from raysim.api.method import AnyHalf, Half
from raysim.system.shared_memory import first_difference
from raysim.system.state import map_tensors


def new_half(half: AnyHalf) -> AnyHalf:
    """Return a half of the same method in its first state."""
    return type(half)(half.name, half.method)


def has_learned(half: Half) -> bool:
    """Return whether a half has another state than at its start, on any device."""
    now, first = (map_tensors(lambda tensor: tensor.cpu(), one.state()) for one in (half, new_half(half)))
    return first_difference(now, first) is not None
