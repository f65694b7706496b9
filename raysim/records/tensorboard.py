"""What TensorBoard shows: scalars over rounds, and the accuracy matrix as an image after every task."""

from __future__ import annotations

import threading
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from raysim.engine.events import RoundDone
from raysim.evaluation import metrics
from raysim.records.figures import matrix_image
from raysim.records.totals import Tally


class Board:
    """Writes events.out.* into a run directory. The step of a scalar is the round, that of an image the task."""

    def __init__(self, directory: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second to import; only where it is wanted

        _fail_here_alone()
        self._writer = SummaryWriter(str(directory))

    def close(self) -> None:
        """Write out what is buffered."""
        self._writer.close()

    def image(self, name: str, image: npt.NDArray[np.uint8]) -> None:
        """Show a picture (uint8 [H, W, 3])."""
        self._writer.add_image(name, image, 0, dataformats="HWC")

    def flush(self) -> None:
        """Write out what is buffered, to the file's end."""
        self._writer.flush()

    def round(self, event: RoundDone, tally: Tally) -> None:
        """Show one round, and the matrices and the clients' updates so far where it ended a task.

        Accuracy is also shown against virtual milliseconds and against KiB sent, which then are the step.
        """
        nbytes = tally.bytes_up + tally.bytes_down
        numbers: dict[str, float | None] = {
            "train/loss": event.loss,
            "bytes/up": event.bytes_up,
            "bytes/down": event.bytes_down,
            "seconds/round": event.seconds,
            "clients/cohort": len(event.cohort),
            "clients/idle_share": event.idle_share,
            "clients/staleness": fmean(event.staleness) if event.staleness else None,
            "virtual_time": event.virtual_time,
            **{f"methods/{name}": value for name, value in event.records.items()},
        }
        for protocol, accuracy in (event.evaluation or {}).items():
            numbers |= {f"{protocol}/task_{i}": value for i, value in enumerate(accuracy, 1)}
            mean = numbers[f"{protocol}/accuracy_so_far"] = fmean(accuracy[: event.so_far])
            self._writer.add_scalar(f"{protocol}/accuracy_by_virtual_ms", mean, round(1000 * event.virtual_time))
            self._writer.add_scalar(f"{protocol}/accuracy_by_KiB", mean, nbytes // 1024)
        if event.task_done:
            self._writer.add_histogram("clients/updates", np.asarray(tally.participation), event.round)
            for protocol, matrix in tally.matrices.items():
                numbers |= {
                    f"{protocol}/forgetting": metrics.forgetting(matrix),
                    f"{protocol}/backward_transfer": metrics.backward_transfer(matrix),
                }
                image = matrix_image(matrix, protocol)
                self._writer.add_image(f"{protocol}/accuracy_matrix", image, len(matrix), dataformats="HWC")
        for name, number in numbers.items():
            if number is not None:
                self._writer.add_scalar(name, number, event.round)


@cache
def _fail_here_alone() -> None:
    """Let the thread that writes end without a traceback where it cannot write: the next call raises its OSError."""
    others = threading.excepthook

    def hook(died: threading.ExceptHookArgs) -> None:
        if not (isinstance(died.exc_value, OSError) and type(died.thread).__module__.startswith("tensorboard.")):
            others(died)

    threading.excepthook = hook
