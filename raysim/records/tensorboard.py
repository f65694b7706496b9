"""TensorBoard's files: scalars over rounds, the accuracy matrix as an image after every task, and the run's config."""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image

from raysim.config import Config, dump
from raysim.config.comparison import flatten_settings
from raysim.engine.events import Forgotten, RoundDone
from raysim.evaluation import accuracy_matrix
from raysim.records.figures import can_draw, matrix_image
from raysim.records.notes import Note
from raysim.records.totals import Totals

BOARD = "events.out.*"
LAST_STEP = 2**63 - 1  # of an event


class Board:
    """Writer of events.out.* into a run directory. The step of a scalar is the round, that of an image the task.

    With their first round, the files begin with the run's config, as text and as the columns of HPARAMS. They also
    begin with the charts of CUSTOM SCALARS. The metrics of HPARAMS are the scalars' last values. HPARAMS shows the
    first five scalars, so the averages come first in the alphabet. What may be the same in every round is written from
    where it changes.

    Args:
        directory: of the run.
        config: the resolved config.
        past: the lines of rounds.jsonl for the rounds that the files in the directory have.
        samples: the number of test samples of each task, as in accuracy_matrix.summarise.
    """

    def __init__(
        self,
        directory: Path,
        config: Config,
        past: Iterable[Mapping[str, Any]] = (),
        samples: Sequence[int] | None = None,
    ) -> None:
        from raysim.records.event_file import EventFile  # imports TensorBoard, which takes time; only if it is used

        self._undescribed = None if any(directory.glob(BOARD)) else config
        self._file = EventFile(directory)
        self._in_step = config.in_step
        self._samples = samples
        self._top_k = config.evaluation.top_k
        self._metric = config.objective.make().metric
        self._called = self._metric.name.replace(" ", "_")
        self._unchanged = _Unchanged()
        for each in past:
            for name, number in diagnose(each).items():
                self._unchanged.take(name, each["round"], number)

    def close(self) -> None:
        """Write the buffer to the file and close it."""
        self._file.close()

    def flush(self) -> None:
        """Write the buffer to the file."""
        self._file.flush()

    def add_image(self, name: str, image: npt.NDArray[np.uint8], step: int = 0) -> None:
        """Write an image (uint8 [H, W, 3])."""
        self._file.add_image(name, image, step)
        self.flush()

    def add_note(self, note: Note) -> None:
        """Write what a callback has recorded."""
        if isinstance(note.value, float):
            self._file.add_scalar(f"callbacks/{note.name}", note.value, note.round)
            self.flush()
        else:
            with PIL.Image.open(BytesIO(note.value)) as picture:
                self.add_image(f"callbacks/{note.name}", np.asarray(picture), note.round)

    def add_round(self, event: RoundDone, recorded: Mapping[str, Any], totals: Totals) -> None:
        """Write one round, and, if it ended a task, the matrices and the clients' updates so far.

        `recorded` is the round's line in rounds.jsonl.
        """
        if self._undescribed is not None:
            self._describe(self._undescribed, [*totals.matrices])
            self._undescribed = None
        numbers: dict[str, float | None] = {
            "train/loss": event.loss,
            "bytes/up_so_far": totals.bytes_up or None,
            "bytes/down_so_far": totals.bytes_down or None,
            "seconds/round": event.seconds,
            "virtual_time": event.virtual_time,
            **self._add_accuracies(event, totals),
        }
        if event.task_done:
            numbers |= self._add_task(event, totals)
        if event.forgotten:
            numbers |= _describe_forgotten(event.forgotten)
        for name, number in numbers.items():
            if number is not None:
                self._file.add_scalar(name, number, event.round)
        for name, number in diagnose(recorded).items():
            for round, value in self._unchanged.take(name, event.round, number):
                self._file.add_scalar(name, value, round)
        self.flush()

    def _describe(self, config: Config, protocols: Sequence[str]) -> None:
        """Write the config, as text and for HPARAMS, and the charts of CUSTOM SCALARS."""
        self._file.add_text("config", f"```yaml\n{dump(config)}```")
        tasks = {
            accuracy_matrix.protocol_label(protocol, self._top_k): {
                f"{self._called} of every task": [rf"^{self._tag(protocol)}/task_\d+$"]
            }
            for protocol in protocols
        }
        average = {f"average {self._called}, tasks so far": [rf"^average/[^/]+/{self._called}$"]}
        self._file.add_charts({**tasks, "protocols": average})
        self._file.add_hparams(flatten_settings(config))

    def _add_accuracies(self, event: RoundDone, totals: Totals) -> dict[str, float]:
        """Write the metric with virtual milliseconds and KiB sent as steps; return the scalars to write by round."""
        numbers: dict[str, float] = {}
        for protocol, accuracy in (event.evaluation or {}).items():
            tag = self._tag(protocol)
            numbers |= {f"{tag}/task_{i}": value for i, value in enumerate(accuracy, 1)}
            mean = numbers[f"average/{tag}/{self._called}"] = fmean(accuracy[: event.so_far])
            if self._samples is not None:
                seen = accuracy_matrix.accuracy_over_samples(accuracy, self._samples, event.so_far)
                numbers[f"average/{tag}/{self._called}_seen"] = seen
            milliseconds = min(round(1000 * event.virtual_time), LAST_STEP)
            self._file.add_scalar(f"{tag}/{self._called}_by_virtual_ms", mean, milliseconds)
            if event.spread is not None:
                spread = event.spread[protocol]
                for figure, row in (("worst", spread["worst"]), ("std", spread["std"])):
                    numbers |= {f"{tag}/{figure}_task_{i}": value for i, value in enumerate(row, 1)}
                    numbers[f"{tag}/{figure}_so_far"] = fmean(row[: event.so_far])
            kib = (totals.bytes_up + totals.bytes_down) // 1024
            self._file.add_scalar(f"{tag}/{self._called}_by_KiB", mean, kib)
        return numbers

    def _add_task(self, event: RoundDone, totals: Totals) -> dict[str, float | None]:
        """Write the clients' updates and the matrices at a task's end; return the metrics to write by round."""
        numbers: dict[str, float | None] = {}
        self._file.add_histogram("clients/updates", totals.participation, event.round)
        for protocol, matrix in totals.matrices.items():
            tag = self._tag(protocol)
            if self._in_step:
                upward = [self._metric.better(row) for row in matrix]
                numbers[f"average/{tag}/forgetting"] = accuracy_matrix.forgetting(upward)
                numbers[f"average/{tag}/backward_transfer"] = accuracy_matrix.backward_transfer(upward)
            over_time = accuracy_matrix.measure_over_time(matrix, self._in_step, self._samples)
            key = f"average/{tag}/average_incremental_{self._called}"
            if self._samples is None:
                numbers[f"{key}_by_task"] = over_time["average_incremental_accuracy_by_task"]
            else:
                numbers[key] = over_time["average_incremental_accuracy"]
            if can_draw():
                image = matrix_image(matrix, protocol, self._in_step, self._top_k, self._metric)
                self.add_image(f"{tag}/{self._called}_matrix", image, len(matrix))
        return numbers

    def _tag(self, protocol: str) -> str:
        """Return the first part of the names of a protocol's accuracies."""
        return protocol if self._top_k == 1 else f"{protocol}_top_{self._top_k}"


def _describe_forgotten(requests: Sequence[Forgotten]) -> dict[str, float | None]:
    """Return the scalars of a round's last request to forget, and the bytes and seconds of all its requests."""
    last = requests[-1]
    pairs = {name: last[name] for name in ("accuracy_forgotten", "accuracy_rest", "attack")}
    totals = {name: sum(each[name] for each in requests) for name in ("samples", "bytes_up", "bytes_down", "seconds")}
    return {
        **{f"forgetting/{name}_before": before for name, (before, _) in pairs.items()},
        **{f"forgetting/{name}_after": after for name, (_, after) in pairs.items()},
        **{f"forgetting/{name}": float(total) for name, total in totals.items()},
    }


class _Unchanged:
    """Withholds scalars until they change, so that no chart is a flat line."""

    def __init__(self) -> None:
        self._withheld: dict[str, tuple[int, int, float] | None] = {}  # first and last round, value; None if it changed

    def take(self, name: str, round: int, value: float | None) -> list[tuple[int, float]]:
        """Return the points to write: none before a change, then both ends of what was withheld, and the new value."""
        if value is None:
            return []
        held = self._withheld.setdefault(name, (round, round, value))
        if held is not None and isclose(held[2], value, abs_tol=1e-12):
            self._withheld[name] = held[0], round, held[2]
            return []
        self._withheld[name] = None
        before = [(at, held[2]) for at in dict.fromkeys(held[:2])] if held is not None else []
        return [*before, (round, value)]


def diagnose(round: Mapping[str, Any]) -> dict[str, float | None]:
    """Return what may be the same in every round, of a round's line in rounds.jsonl."""
    return {
        "clients/cohort": len(round["cohort"]),
        "clients/idle_share": round["idle_share"],
        "clients/staleness": fmean(round["staleness"]) if round["staleness"] else None,
        **{f"methods/{name}": value for name, value in round["records"].items()},
    }
