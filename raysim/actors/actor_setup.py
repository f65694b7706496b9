"""Set-up of every actor's process: serialization of tensors, visible GPUs."""

import os

from raysim.actors.serialization import register_tensors


def set_up_actor(gpus: float) -> None:
    """Prepare the process of an actor that trains on this number of GPUs."""
    register_tensors()
    if not gpus:
        hide_gpus()


def hide_gpus() -> None:
    """Hide all GPUs from this actor; Ray leaves them visible to an actor that requested none."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
