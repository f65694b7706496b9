"""TensorBoard's files: scalars over rounds, and the accuracy matrix as an image after every task."""

import threading
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from raysim.engine.events import RoundDone
from raysim.evaluation import metrics
from raysim.objectives import Metric
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.records.figures import matrix_image
from raysim.records.notes import Note
from raysim.records.totals import Totals


class Board:
    """Writer of events.out.* into a run directory. The step of a scalar is the round, that of an image the task.

    in_step, metric: as in metrics.summarise. top_k: above 1, it is part of the names of what is accuracy.
    """

    def __init__(self, directory: Path, in_step: bool, top_k: int = 1, metric: Metric = ACCURACY_METRIC) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes a second to import; only if it is used

        _silence_failing_writers()
        self._writer = SummaryWriter(str(directory))
        self._in_step = in_step
        self._top_k = top_k
        self._metric = metric
        self._called = metric.name.replace(" ", "_")

    def close(self) -> None:
        """Write out the buffers and close the files."""
        self._writer.close()

    def flush(self) -> None:
        """Write out the buffers to the end of the file."""
        self._writer.flush()

    def add_image(self, name: str, image: npt.NDArray[np.uint8], step: int = 0) -> None:
        """Write an image (uint8 [H, W, 3])."""
        self._writer.add_image(name, image, step, dataformats="HWC")

    def add_note(self, note: Note) -> None:
        """Write what a callback has recorded."""
        if isinstance(note.value, float):
            self._writer.add_scalar(f"callbacks/{note.name}", note.value, note.round)
        else:
            self.add_image(f"callbacks/{note.name}", note.value, note.round)

    def add_round(self, event: RoundDone, totals: Totals) -> None:
        """Write one round, and, if it ended a task, the matrices and the clients' updates so far."""
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
            **self._add_accuracies(event, totals),
        }
        if event.task_done:
            numbers |= self._add_task(event, totals)
        for name, number in numbers.items():
            if number is not None:
                self._writer.add_scalar(name, number, event.round)

    def _add_accuracies(self, event: RoundDone, totals: Totals) -> dict[str, float]:
        """Write the metric with virtual milliseconds and KiB sent as steps; return the scalars to write by round."""
        numbers: dict[str, float] = {}
        for protocol, accuracy in (event.evaluation or {}).items():
            tag = self._tag(protocol)
            numbers |= {f"{tag}/task_{i}": value for i, value in enumerate(accuracy, 1)}
            mean = numbers[f"{tag}/{self._called}_so_far"] = fmean(accuracy[: event.so_far])
            self._writer.add_scalar(f"{tag}/{self._called}_by_virtual_ms", mean, round(1000 * event.virtual_time))
            if event.spread is not None:
                spread = event.spread[protocol]
                for figure, row in (("worst", spread["worst"]), ("std", spread["std"])):
                    numbers |= {f"{tag}/{figure}_task_{i}": value for i, value in enumerate(row, 1)}
                    numbers[f"{tag}/{figure}_so_far"] = fmean(row[: event.so_far])
            kib = (totals.bytes_up + totals.bytes_down) // 1024
            self._writer.add_scalar(f"{tag}/{self._called}_by_KiB", mean, kib)
        return numbers

    def _add_task(self, event: RoundDone, totals: Totals) -> dict[str, float | None]:
        """Write the clients' updates and the matrices at a task's end; return the metrics to write by round."""
        numbers: dict[str, float | None] = {}
        self._writer.add_histogram("clients/updates", np.asarray(totals.participation), event.round)
        for protocol, matrix in totals.matrices.items():
            if self._in_step:
                upward = [self._metric.better(row) for row in matrix]
                numbers[f"{self._tag(protocol)}/forgetting"] = metrics.forgetting(upward)
                numbers[f"{self._tag(protocol)}/backward_transfer"] = metrics.backward_transfer(upward)
            image = matrix_image(matrix, protocol, self._in_step, self._top_k, self._metric)
            self.add_image(f"{self._tag(protocol)}/{self._called}_matrix", image, len(matrix))
        return numbers

    def _tag(self, protocol: str) -> str:
        """Return the first part of the names of a protocol's accuracies."""
        return protocol if self._top_k == 1 else f"{protocol}_top_{self._top_k}"


@cache
def _silence_failing_writers() -> None:
    """Suppress the traceback of a writer's thread that cannot write; the writer's next call raises its OSError."""
    others = threading.excepthook

    def hook(died: threading.ExceptHookArgs) -> None:
        if not (isinstance(died.exc_value, OSError) and type(died.thread).__module__.startswith("tensorboard.")):
            others(died)

    threading.excepthook = hook
