"""Copies of tensors to the model's device that do not wait for it."""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return the tensor on a device, without waiting for what the device still has to do.

    A copy from pinned memory takes its turn among a GPU's other work; from any other memory torch waits for all of it.
    """
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
