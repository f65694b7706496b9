"""The C library's allocator, told to keep what it has for the next training step."""

from __future__ import annotations

import ctypes

from raysim.system.capacity import MIB

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT = 512 * MIB
LARGEST_ON_HEAP = 32 * MIB  # the most that glibc takes


def keep_memory() -> None:
    """Let glibc keep freed memory instead of handing it back to the kernel, where this is glibc.

    By default it returns a training step's activations after every step in some processes and not in others, as the
    heap happens to lie; faulting them in again took up to a fifth of a host's time (MNIST CNN, batches of 32).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, LARGEST_ON_HEAP)
