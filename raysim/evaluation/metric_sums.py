"""What a metric needs of test samples, exact sums or each sample's row: neither chunks nor hosts can change a bit.

Every measured number is a float64, which is an integer multiple of 2^-1126. So sums are integers of any size. Rows are
collected with the position of their first sample, and put in order.
"""

from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from math import isfinite
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from raysim.objectives import Objective, OfAllSamples
from raysim.system.custom_code import place_of
from raysim.system.errors import Diverged, RunError

UNIT = 1126  # bits after the binary point: 1073 for the smallest float64's exponent, 53 for its digits
LOW = 26  # low bits of the digits, summed separately so that 2^36 samples cannot overflow int64

Sums = npt.NDArray[Any]
"""Python integers in units of 2^-UNIT, [tasks, m]; m = 0 if nothing was measured. Of an objective OfAllSamples: a tuple
of `Rows` for each task, [tasks, 1]. The sum of two hosts' tuples is both."""

Rows = tuple[int, npt.NDArray[np.float64]]
"""The position of a chunk's first sample in the test set, and the chunk's rows of `measure` [n, m]."""


def add_exactly(objective: Objective, measured: Sequence[Tensor]) -> list[int]:
    """Return the m sums over the rows of all these tensors [n, m]. Only this waits for a GPU.

    Raises:
        Diverged: a number is not finite.
    """
    if not measured:
        return []
    return [_add_column(column) for column in np.concatenate([_to_rows(objective, part) for part in measured]).T]


def collect_rows(
    objective: Objective, starts_of_tasks: Sequence[Sequence[int]], measured: Sequence[Sequence[Tensor]]
) -> Sums:
    """Return the rows of every task's tensors [n, m]. Their first samples have these positions in its test set.

    Raises:
        Diverged: a number is not finite.
    """
    collected = np.empty((len(measured), 1), object)
    for task, (starts, parts) in enumerate(zip(starts_of_tasks, measured, strict=True)):
        collected[task, 0] = tuple(zip(starts, map(partial(_to_rows, objective), parts), strict=True))
    return collected


def _to_rows(objective: Objective, measured: Tensor) -> npt.NDArray[np.float64]:
    rows: npt.NDArray[np.float64] = measured.double().cpu().numpy()
    if not np.isfinite(rows).all():
        problem = "returned NaN or infinite numbers although the model's outputs are finite, allowed: finite numbers"
        advice = "if the outputs are large, a smaller training.optimizer.lr may help"
        raise Diverged(f"objective: {place_of(type(objective))}.measure {problem}; {advice}")
    return rows


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


def evaluate_metric(objective: Objective, sums: Sequence[Any], samples: int, task: str) -> float:
    """Return the metric of a task's test samples, from their sums or rows; 0 where nothing was measured.

    Raises:
        RunError: the metric is undefined, not finite or no number.
    """
    if not len(sums):
        return 0.0
    try:
        if isinstance(objective, OfAllSamples):
            in_order = sorted(sums[0], key=itemgetter(0))
            value: float | Fraction = objective.value_of(np.concatenate([rows for _, rows in in_order]))
        else:
            value = objective.value([Fraction(total, 1 << UNIT) for total in sums], samples)
    except (ZeroDivisionError, OverflowError) as error:
        raise _undefined(objective, task, str(error)) from error
    with suppress(TypeError, ValueError, OverflowError, RuntimeError):  # no number, or too large for a float
        if isfinite(value):
            return float(value)
    raise _undefined(objective, task, f"found {value!r:.60}, allowed: a finite number")


def _undefined(objective: Objective, task: str, why: str) -> RunError:
    who = place_of(type(objective))
    return RunError(f"objective: {who} has no finite {objective.metric.name} on the test samples of {task}: {why}")
