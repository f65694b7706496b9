"""Quantities of a run that its summary does not have, from its matrix of accuracies.

Row t of the matrix has the accuracies on all tasks at the end of task t.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from raysim.reports.quantity_tables import ACCURACY

Matrix = Sequence[Sequence[float | None]]

OF_MATRIX = {
    key: replace(ACCURACY, key=key, heading=heading)
    for key, heading in {
        "all_rows": "mean over the tasks of the accuracy on the tasks so far",
        "last_change": "change on the earlier tasks in the last task",
    }.items()
}


def of_matrix(block: Mapping[str, Any]) -> dict[str, float]:
    """Return the quantities of a protocol's block of a summary, those that its matrix has."""
    return dict(_quantities(block.get("accuracy") or []))


def _quantities(matrix: Matrix) -> Iterator[tuple[str, float]]:
    so_far = [_whole(row[: task + 1]) for task, row in enumerate(matrix)]
    if so_far and None not in so_far:
        yield "all_rows", fmean(fmean(row) for row in so_far if row)
    if len(matrix) > 1:
        before, after = (_whole(row[: len(matrix) - 1]) for row in matrix[-2:])
        if before and after:
            yield "last_change", fmean(after) - fmean(before)


def _whole(row: Sequence[float | None]) -> list[float] | None:
    """Return a row without missing values, or None if one is missing."""
    found = [value for value in row if value is not None]
    return found if len(found) == len(row) else None
