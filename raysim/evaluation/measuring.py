"""Exact sums of a metric over test samples: neither chunks nor hosts can change a bit.

Every measured number is a float64, which is an integer multiple of 2^-1126. So sums are integers of any size.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from raysim.objectives import Objective
from raysim.system.custom_code import place_of
from raysim.system.errors import Diverged, RunError

UNIT = 1126  # bits after the binary point: 1073 for the smallest float64's exponent, 53 for its digits
LOW = 26  # low bits of the digits, summed separately so that 2^36 samples cannot overflow int64

Sums = npt.NDArray[Any]
"""Python integers in units of 2^-UNIT, [tasks, m]; m = 0 if nothing was measured."""


def add_exactly(measured: Sequence[Tensor]) -> list[int]:
    """Return the m sums over the rows of all these tensors [n, m]. Only this waits for a GPU.

    Raises:
        Diverged: a number is not finite.
    """
    if not measured:
        return []
    rows = np.concatenate([part.double().cpu().numpy() for part in measured])
    if not np.isfinite(rows).all():
        raise Diverged("the model's outputs on test samples are not finite; a smaller training.optimizer.lr may help")
    return [_add_column(column) for column in rows.T]


def _add_column(values: npt.NDArray[np.float64]) -> int:
    digits, exponents = np.frexp(values)
    scaled = np.ldexp(digits, 53).astype(np.int64)
    total = 0
    for exponent in np.unique(exponents).tolist():
        same_exponent = scaled[exponents == exponent]
        high, low = int((same_exponent >> LOW).sum()), int((same_exponent & (2**LOW - 1)).sum())
        total += ((high << LOW) + low) << (exponent - 53 + UNIT)
    return total


def stack_sums(sums_of_tasks: Sequence[Sequence[int]]) -> Sums:
    """Return the sums of all tasks, [tasks, m]. A task without sums has zeros."""
    width = max(map(len, sums_of_tasks), default=0)
    stacked = np.zeros((len(sums_of_tasks), width), object)
    for task, sums in enumerate(sums_of_tasks):
        if sums:
            stacked[task] = sums
    return stacked


def merge_sums(parts: Sequence[Sums]) -> Sums:
    """Add the sums of several hosts. Some hosts may have measured nothing."""
    measured = [part for part in parts if part.shape[1]]
    return np.sum(measured, axis=0) if measured else parts[0]


def evaluate_metric(objective: Objective, sums: Sequence[int], samples: int, task: str) -> float:
    """Return the metric of a task's test samples; 0 where nothing was measured.

    Raises:
        RunError: the metric is undefined or not finite.
    """
    if not len(sums):
        return 0.0
    exact = [Fraction(total, 1 << UNIT) for total in sums]
    try:
        value = float(objective.value(exact, samples))
    except (ZeroDivisionError, OverflowError) as error:
        raise _undefined(objective, task, str(error)) from error
    if not isfinite(value):
        raise _undefined(objective, task, f"found {value}")
    return value


def _undefined(objective: Objective, task: str, why: str) -> RunError:
    who = place_of(type(objective))
    return RunError(f"objective: {who} has no finite {objective.metric.name} on the test samples of {task}: {why}")
