"""Set-up of every actor's process: serialisation of tensors, memory that the allocator keeps, visible GPUs."""

import ctypes
import os

from raysim.actors import searching
from raysim.actors.wire import register_tensors
from raysim.system.capacity import MIB

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT = 512 * MIB
LARGEST_ON_HEAP = 32 * MIB  # the largest value that glibc accepts

# with an actor's class, as its arguments, which may be of own classes, are read before its constructor runs
searching.append_folders()


def set_up_actor(gpus: float) -> None:
    """Prepare the process of an actor that trains on this number of GPUs."""
    register_tensors()
    keep_memory()
    if not gpus:
        hide_gpus()


def keep_memory() -> None:
    """Make glibc, if it is the C library, keep freed memory instead of returning it to the kernel.

    By default it returns a training step's activations after every step in some processes and not in others, depending
    on the heap's layout; faulting them in again took up to a fifth of a host's time (MNIST CNN, batches of 32).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, LARGEST_ON_HEAP)


def hide_gpus() -> None:
    """Hide all GPUs from this actor; Ray leaves them visible to an actor that requested none."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
