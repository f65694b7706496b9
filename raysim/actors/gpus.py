"""GPUs that an actor sees."""

from __future__ import annotations

import os


def hide_gpus() -> None:
    """Hide all GPUs from this actor: Ray leaves them visible to one that asked for none."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
