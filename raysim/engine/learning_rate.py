"""The clients' learning rate, as it decays by round and by task."""

from __future__ import annotations

import math

from raysim.config.experiment import Training
from raysim.config.schema import LARGEST_FLOAT32
from raysim.system.errors import RunError


def learning_rate(training: Training, round: int, task: int, began: int) -> float:
    """Return the learning rate of a round (from 1) of a task (from 0) that began after the round `began`.

    Raises:
        RunError: it is larger than any number in single precision.
    """
    decay = training.lr_decay
    rounds = round - 1 - (began if decay.restart else 0)
    try:
        lr = training.optimizer.lr * float(decay.per_round**rounds) * float(decay.per_task**task)
    except OverflowError:
        lr = math.inf
    if lr > LARGEST_FLOAT32:
        raise RunError(
            f"training.lr_decay: the learning rate of round {round} is over {LARGEST_FLOAT32:.2g}; lower per_round "
            "or per_task"
        )
    return lr
