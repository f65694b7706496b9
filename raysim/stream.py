"""One client's data in the order of their arrival. A sample is a position in it: an image turned is another sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Stream:
    """The rows (of the train split) that reach one client, task after task.

    Args:
        rows: for every task, int32 row numbers; tasks may share one array.
    """

    def __init__(self, rows: Sequence[npt.NDArray[np.int32]]) -> None:
        self.rows = tuple(rows)
        self.bounds = torch.tensor([0, *np.cumsum([len(r) for r in rows])], dtype=torch.int64)

    def __len__(self) -> int:
        return int(self.bounds[-1])

    @property
    def windows(self) -> int:
        """How many portions the data arrive in: one per task."""
        return len(self.rows)

    def span(self, first: int, last: int) -> Tensor:
        """Return the positions (int64) of the windows first, ..., last - 1."""
        return torch.arange(int(self.bounds[first]), int(self.bounds[last]))

    def size(self, window: int) -> int:
        """Return the number of samples of one window."""
        return len(self.rows[window])

    def locate(self, positions: Tensor) -> tuple[Tensor, int | Tensor]:
        """Return the rows (int64 [n]) at these positions, and their task: one number where all are of one task."""
        tasks = torch.searchsorted(self.bounds, positions, right=True) - 1
        rows = torch.empty_like(positions)
        present = torch.unique(tasks).tolist()
        for task in present:
            mine = tasks == task
            index = (positions[mine] - self.bounds[task]).numpy()
            rows[mine] = torch.from_numpy(self.rows[task][index].astype(np.int64))
        return rows, present[0] if len(present) == 1 else tasks
