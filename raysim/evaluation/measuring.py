"""What a metric adds up over test samples, added exactly: neither chunks nor hosts can change a bit of it.

Every measured number is a float64, which is a whole number of 2^-1126; so sums are whole numbers of any size.
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

UNIT = 1126  # bits behind the binary point: 1073 of the smallest float64's exponent, 53 of its digits
LOW = 26  # bits of a number's digits that are added apart, so that 2^36 samples cannot overflow int64

Sums = npt.NDArray[Any]
"""Whole numbers of 2^-UNIT, of Python's own: [tasks, m]; m = 0 where nothing was measured."""


def add_exactly(measured: Sequence[Tensor]) -> list[int]:
    """Return the sums over the rows of all these tensors [n, m], m whole numbers. Only this waits for a GPU.

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
    whole = np.ldexp(digits, 53).astype(np.int64)
    total = 0
    for exponent in np.unique(exponents).tolist():
        some = whole[exponents == exponent]
        high, low = int((some >> LOW).sum()), int((some & (2**LOW - 1)).sum())
        total += ((high << LOW) + low) << (exponent - 53 + UNIT)
    return total


def stack_sums(of_tasks: Sequence[Sequence[int]]) -> Sums:
    """Return the sums of all tasks, [tasks, m]; zeros for a task that has none here."""
    width = max(map(len, of_tasks), default=0)
    found = np.zeros((len(of_tasks), width), object)
    for task, sums in enumerate(of_tasks):
        if sums:
            found[task] = sums
    return found


def merge_sums(parts: Sequence[Sums]) -> Sums:
    """Add what several hosts measured, of which some had nothing to measure."""
    measured = [part for part in parts if part.shape[1]]
    return np.sum(measured, axis=0) if measured else parts[0]


def evaluate_metric(objective: Objective, sums: Sequence[int], samples: int, task: str) -> float:
    """Return the metric of a task's test samples; 0 where nothing was measured, as in a dry run.

    Raises:
        RunError: the metric is not defined there, or is not finite.
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
