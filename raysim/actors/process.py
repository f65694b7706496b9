"""What every actor's process is told at its start: how tensors travel, what the allocator keeps, which GPUs it sees."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import numpy.typing as npt
import ray
import torch
from torch import Tensor

from raysim.system.capacity import MIB

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT = 512 * MIB
LARGEST_ON_HEAP = 32 * MIB  # the most that glibc takes


def set_up_actor(gpus: float) -> None:
    """Prepare the process of an actor that trains, with so many GPUs."""
    register_tensors()
    keep_memory()
    if not gpus:
        hide_gpus()


def register_tensors() -> None:
    """Have this process's Ray send tensors as NumPy arrays, which it moves without pickling their contents.

    To be called in every process that sends or receives.
    """
    ray.util.register_serializer(Tensor, serializer=_array, deserializer=_tensor)


def keep_memory() -> None:
    """Let glibc keep freed memory instead of handing it back to the kernel, where this is glibc.

    By default it returns a training step's activations after every step in some processes and not in others, as the
    heap happens to lie; faulting them in again took up to a fifth of a host's time (MNIST CNN, batches of 32).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, LARGEST_ON_HEAP)


def hide_gpus() -> None:
    """Hide all GPUs from this actor: Ray leaves them visible to one that asked for none."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _array(tensor: Tensor) -> npt.NDArray[np.generic]:
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _tensor(array: npt.NDArray[np.generic]) -> Tensor:
    # A copy: what Ray hands out is read only and pins its object for as long as anyone looks at it.
    return torch.from_numpy(array.copy())
