"""Ray on the loopback interface alone, where no other machine can reach it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ray

LOOPBACK = "127.0.0.1"
REACHABLE = "ENABLE_RAY_CLUSTER"  # a constant of Ray's: whether a node's address must be one that others can reach


@contextmanager
def on_loopback() -> Iterator[None]:
    """Have the nodes that are started or joined meanwhile listen on the loopback interface alone.

    Ray takes a node's address of 127.0.0.1 for the machine's public one, and then listens on all interfaces. The
    constant is what RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 sets in a process that has not imported Ray yet.
    """
    constants = ray._private.ray_constants
    before = getattr(constants, REACHABLE, True)
    setattr(constants, REACHABLE, False)
    try:
        yield
    finally:
        setattr(constants, REACHABLE, before)
