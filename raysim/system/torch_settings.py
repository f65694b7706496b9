"""What the determinism law asks of torch in a process that computes."""

from __future__ import annotations

import os

import torch


def set_torch(device: torch.device, deterministic: bool) -> None:
    """Set what the determinism law needs: one thread per client computation, and on a GPU deterministic algorithms."""
    torch.set_num_threads(1)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; deterministic products
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cuda.matmul.allow_tf32 = not deterministic
        torch.backends.cudnn.allow_tf32 = not deterministic
        torch.backends.cudnn.benchmark = not deterministic
