"""Learning rate schedules: a round's learning rate, given the optimizer's learning rate and the run's progress."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from annotated_types import doc
from pydantic import Field

from raysim.config.block import Positive, WholeNumber
from raysim.config.experiment import FACTORS, Training
from raysim.config.schema import LARGEST_FLOAT32
from raysim.federation.availability import Progress
from raysim.system.custom_code import is_custom, place_of
from raysim.system.errors import RunError

RATE_SCHEDULES: Mapping[str, str] = {
    FACTORS: "raysim.engine.rates:factors",
    "cosine": "raysim.engine.rates:cosine",
    "warmup": "raysim.engine.rates:warmup",
}
"""Name in YAML (training.lr_decay) -> `module:function`: f(lr, progress, *, keys...) -> the round's learning rate."""

Per = Literal["run", "task"]


def factors(
    lr: float,
    progress: Progress,
    *,
    per_round: Annotated[Positive, doc("the factor after every round")] = 1.0,
    per_task: Annotated[Positive, doc("the factor after every task")] = 1.0,
    restart: Annotated[bool, doc("whether the decay per round restarts with every task")] = True,
) -> float:
    """A factor after every round and every task."""
    rounds = progress.round - 1 - (progress.began if restart else 0)
    return lr * float(per_round**rounds) * float(per_task**progress.task)


def cosine(
    lr: float,
    progress: Progress,
    *,
    per: Annotated[Per, doc("whether the cosine spans each task, or the run")] = "task",
    warmup: Annotated[WholeNumber, doc("rounds of linear warmup before the cosine")] = 0,
    least: Annotated[float, Field(ge=0, le=1), doc("the fraction of lr at the end")] = 0.0,
) -> float:
    """Cosine decay from lr, over every task or the run (SGDR: Loshchilov and Hutter, ICLR 2017)."""
    done, rounds = _span(progress, per)
    if done < warmup:
        return lr * (done + 1) / (warmup + 1)
    fraction = (done - warmup) / max(rounds - warmup, 1)
    return lr * (least + (1 - least) * (1 + math.cos(math.pi * fraction)) / 2)


def warmup(
    lr: float,
    progress: Progress,
    *,
    per: Annotated[Per, doc("whether the warmup is at the start of the run, or of each task")] = "run",
    rounds: Annotated[WholeNumber, doc("the number of warmup rounds")] = 5,
) -> float:
    """Linear warmup from lr / (rounds + 1), then lr (Goyal et al., 2017)."""
    return lr * min(1.0, (_span(progress, per)[0] + 1) / (rounds + 1))


def _span(progress: Progress, per: Per) -> tuple[int, int]:
    """Return how many rounds of the task or the run are done, and their total number."""
    if per == "task":
        return progress.round - 1 - progress.began, progress.lasts
    return progress.round - 1, progress.rounds


def learning_rate(training: Training, progress: Progress) -> float:
    """Return the learning rate of a round.

    Raises:
        RunError: the rate is too large for single precision, or a user-defined schedule returned an invalid value.
    """
    schedule = training.lr_decay
    try:
        lr = schedule.with_keys()(training.optimizer.lr, progress)
    except OverflowError:
        lr = math.inf
    is_rate = isinstance(lr, float | int | np.floating) and lr >= 0
    if not is_rate or (lr > LARGEST_FLOAT32 and is_custom(schedule.function())):
        who = f"training.lr_decay: in round {progress.round} {place_of(schedule.function())}"
        allowed = f"a number from 0 to {LARGEST_FLOAT32:.2g}, the round's learning rate"
        raise RunError(f"{who} returned {lr!r:.60}, allowed: {allowed}")
    if lr > LARGEST_FLOAT32:
        advice = "per_round or per_task" if schedule.name == FACTORS else "training.optimizer.lr"
        raise RunError(
            f"training.lr_decay: the learning rate of round {progress.round} is over {LARGEST_FLOAT32:.2g}; lower "
            f"{advice}"
        )
    return float(lr)
