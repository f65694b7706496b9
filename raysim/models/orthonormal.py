"""Orthonormal rows by Gram-Schmidt, as CODA-Prompt draws its components. Smith et al., CVPR 2023."""

import torch
from torch import Tensor

SMALLEST_SQUARE = 1e-8  # of a row that others are made orthogonal to


def draw_orthonormal_rows(table: Tensor, start: int, stop: int) -> Tensor:
    """Return the table [n, ...] with new rows from `start` to `stop`: N(0, 1), then Gram-Schmidt, each of norm 1.

    New rows are orthogonal to each other, and to the rows before `start` as far as these are orthogonal. Rows before
    `start` with a square norm below 1e-8 have no direction and are ignored. Rows from `stop` are unchanged. The sums
    are in float64. torch's global generator draws.
    """
    if table.is_meta:  # it has a size, but no values
        return table
    rows: Tensor = table.detach().flatten(1).to(torch.float64, copy=True)
    for number in range(start, stop):
        rows[number] = _draw_row(rows[:number])
    return rows.view(table.shape).to(table.dtype)


def _draw_row(before: Tensor) -> Tensor:
    """Return a row [d] of norm 1, after one pass of Gram-Schmidt against the rows before it [k, d]."""
    squares = before.square().sum(1)
    factors = torch.where(squares < SMALLEST_SQUARE, 0.0, 1 / squares.clamp(min=SMALLEST_SQUARE))
    while True:
        drawn = torch.randn(before.shape[1], dtype=torch.float64).to(before)
        row = drawn - (before @ drawn * factors) @ before
        square: Tensor = row.square().sum()
        if square >= SMALLEST_SQUARE:
            return row * square.rsqrt()
