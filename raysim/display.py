"""What a person sees while a run goes on: a live progress display on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from raysim.config import Config
from raysim.events import Event, RoundDone, Started
from raysim.figures import NAMES
from raysim.metrics import average_accuracy
from raysim.result import Result


class Display(Protocol):
    """Shows a run."""

    def take(self, event: Event) -> None:
        """Show one event."""

    def say(self, text: str) -> None:
        """Show a line."""


class Silence:
    """Shows nothing."""

    def take(self, event: Event) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""


class Lines:
    """A line per evaluation, for logs and pipes."""

    def __init__(self, console: Console, rounds: int) -> None:
        self._console = console
        self._rounds = rounds

    def take(self, event: Event) -> None:
        """Write a line where the model was evaluated."""
        if isinstance(event, RoundDone) and event.evaluation:
            loss = "" if event.loss is None else f", loss {event.loss:.3f}"
            self.say(f"task {event.tasks[-1]}, round {event.round} of {self._rounds}{loss}, {accuracy_so_far(event)}")

    def say(self, text: str) -> None:
        """Write a line."""
        self._console.print(text, highlight=False, soft_wrap=True)


class Live:
    """A progress bar: task, round, loss, accuracy so far, time left."""

    def __init__(self, progress: Progress, config: Config, rounds: int) -> None:
        self._progress = progress
        self._bar = progress.add_task("starting", total=rounds, status="")
        self._tasks = config.scenario.tasks
        self._accuracy = ""

    def take(self, event: Event) -> None:
        """Move the bar."""
        if isinstance(event, Started):
            self._progress.reset(self._bar, description=f"task 1/{self._tasks}")
        elif isinstance(event, RoundDone):
            if event.evaluation:
                self._accuracy = accuracy_so_far(event)
            loss = "" if event.loss is None else f"loss {event.loss:.3f}  "
            task = f"task {event.tasks[-1]}/{self._tasks}"
            self._progress.update(self._bar, completed=event.round, description=task, status=loss + self._accuracy)

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self._progress.console.print(text, highlight=False, soft_wrap=True)


@contextmanager
def display(config: Config, quiet: bool) -> Iterator[Display]:
    """Choose how to show a run, by where the output goes."""
    console = Console(file=sys.stdout)
    rounds = config.training.rounds_per_task * config.scenario.tasks
    if quiet:
        yield Silence()
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as progress:
            yield Live(progress, config, rounds)
    else:
        yield Lines(console, rounds)


def accuracy_so_far(event: RoundDone) -> str:
    """Say the mean accuracy over the tasks so far, by protocol."""
    task = max(event.tasks)
    return ", ".join(
        f"{NAMES[protocol]} {100 * sum(row[:task]) / task:.1f}%" for protocol, row in (event.evaluation or {}).items()
    )


def show_result(result: Result, console: Console) -> None:
    """Print the accuracy matrices, the metrics and where the files are."""
    for protocol, values in result.evaluation.items():
        matrix = values["accuracy"]
        table = Table(title=f"accuracy in %, {NAMES[protocol]}: test set of task i after task t", title_justify="left")
        table.add_column("t \\ i", justify="right")
        for i in range(result.tasks):
            table.add_column(str(i + 1), justify="right")
        table.add_column("mean so far", justify="right")
        for t, row in enumerate(matrix, 1):
            mean = average_accuracy(matrix, t)
            table.add_row(str(t), *(f"{100 * a:.1f}" for a in row), f"{100 * (mean or 0):.1f}")
        console.print(table)
        named = {key: values[key] for key in values if key != "accuracy"}
        shown = (f"{key.replace('_', ' ')} {'-' if v is None else format(100 * v, '.1f')}" for key, v in named.items())
        console.print("  ".join(shown), highlight=False)
    mib = 2**20
    console.print(
        f"{result.status}: {result.rounds} rounds in {result.seconds:.0f} s, {result.bytes_up / mib:.1f} MiB up, "
        f"{result.bytes_down / mib:.1f} MiB down",
        highlight=False,
    )
    console.print(f"run directory: {result.directory}", highlight=False, soft_wrap=True)
    console.print(f"TensorBoard:   tensorboard --logdir {result.directory}", highlight=False, soft_wrap=True)
