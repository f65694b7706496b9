"""Display of a run: a live progress bar on a terminal, plain lines elsewhere, or nothing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from raysim.config import Config
from raysim.engine.events import Event, Notice, RoundDone, Started
from raysim.evaluation.metrics import Matrix, average_accuracy, protocol_label
from raysim.evaluation.scoring import describe_clients
from raysim.records.result import Result
from raysim.system.capacity import MIB
from raysim.system.errors import single_line


class Display:
    """Display of lines of text on a console; this class has no console.

    `log` names a file, in the directory that is written, for what Ray writes to standard error; None leaves it.
    """

    console: Console | None = None
    log: str | None = None

    def say(self, text: str) -> None:
        """Show a line, above a live display."""
        if self.console is not None:
            print_line(self.console, text)


class RunDisplay(Display):
    """Display of a run; this class shows only its notices, if there is a console."""

    def take(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, Notice):
            self.say(event.text)


class RunLines(RunDisplay):
    """A line per evaluation, for logs and pipes."""

    def __init__(self, console: Console, top_k: int = 1) -> None:
        self.console = console
        self._rounds = 0
        self._top_k = top_k

    def take(self, event: Event) -> None:
        """Write a line where the model was evaluated."""
        super().take(event)
        if isinstance(event, Started):
            self._rounds = event.rounds
        elif isinstance(event, RoundDone) and event.evaluation:
            loss = "" if event.loss is None else f", loss {event.loss:.3f}"
            accuracy = accuracy_so_far(event, self._top_k)
            self.say(f"task {event.tasks[-1]}, round {event.round} of {self._rounds}{loss}, {accuracy}")


class LiveRun(RunDisplay):
    """A progress bar: task, round, loss, accuracy so far, time left."""

    def __init__(self, progress: Progress, config: Config) -> None:
        self.console = progress.console
        self._progress = progress
        self._bar = progress.add_task("starting", total=None, status="")
        self._tasks = config.scenario.tasks
        self._top_k = config.evaluation.top_k
        self._accuracy = ""

    def take(self, event: Event) -> None:
        """Move the bar."""
        super().take(event)
        if isinstance(event, Started):
            first = f"task 1/{self._tasks}" if not event.done else f"going on from round {event.done}"
            self._progress.reset(self._bar, total=event.rounds, completed=event.done, description=first)
        elif isinstance(event, RoundDone):
            if event.evaluation:
                self._accuracy = accuracy_so_far(event, self._top_k)
            loss = "" if event.loss is None else f"loss {event.loss:.3f}  "
            task = f"task {event.tasks[-1]}/{self._tasks}"
            self._progress.update(self._bar, completed=event.round, description=task, status=loss + self._accuracy)


@contextmanager
def open_run_display(config: Config, quiet: bool) -> Iterator[RunDisplay]:
    """Open the display of a run that suits the output: a terminal, a file or pipe, or nothing."""
    console = Console(file=sys.stdout)
    if quiet:
        yield RunDisplay()
    elif console.is_terminal:
        run = ("{task.description}", BarColumn(), "round", MofNCompleteColumn(), "{task.fields[status]}")
        times = (TimeElapsedColumn(), "· left", TimeRemainingColumn())
        with Progress(*run, *times, console=console) as progress:
            yield LiveRun(progress, config)
    else:
        yield RunLines(console, config.evaluation.top_k)


def accuracy_so_far(event: RoundDone, top_k: int) -> str:
    """Return the mean accuracy over the tasks so far, by protocol, as text."""
    task = event.so_far
    return ", ".join(
        f"{protocol_label(protocol, top_k)} {100 * sum(row[:task]) / task:.1f}%"
        for protocol, row in (event.evaluation or {}).items()
    )


def show_result(result: Result, console: Console, resume_command: str) -> None:
    """Print the accuracy matrices, the metrics, the location of the files, and how to go on if it was interrupted."""
    for protocol, values in result.evaluation.items():
        in_step = values["forgetting"] is not None or len(values["accuracy"]) < 2
        when = "task t" if in_step else f"t/{len(values['accuracy'])} of the run"
        label = protocol_label(protocol, result.top_k, result.tested)
        print_line(console, f"accuracy in %, {label}: row t is after {when}, column i is on task i")
        console.print(_tabulate(values["accuracy"], console.width))
        for name, matrix in (("worst client", values.get("worst")), ("deviation over clients", values.get("std"))):
            if matrix:
                print_line(console, f"{name}, by task, at the end: {', '.join(f'{100 * a:.1f}' for a in matrix[-1])}")
        metrics = {key.replace("_", " "): v for key, v in values.items() if v is None or isinstance(v, float)}
        said = ", ".join(f"{name} {'-' if v is None else format(100 * v, '.1f')}" for name, v in metrics.items())
        print_line(console, said)
        console.print()
    for protocol, found in (result.per_client or {}).items():
        print_line(console, describe_clients(protocol, found, result.top_k))
    print_line(
        console,
        f"{result.status}: {result.rounds} rounds in {result.seconds:.0f} s, {result.bytes_up / MIB:.1f} MiB up, "
        f"{result.bytes_down / MIB:.1f} MiB down",
    )
    print_line(console, f"run directory: {result.directory}")
    if result.status == "interrupted":
        print_line(console, f"to go on:      {resume_command}")
    if any(result.directory.glob("events.out.*")):
        print_line(console, f"TensorBoard:   tensorboard --logdir {result.directory}")


def result_console() -> Console:
    """Return a console for a result: as wide as the terminal, or, in a file, as the widest matrix."""
    console = Console()
    return console if console.is_terminal else Console(width=1000)


def print_line(console: Console, text: str) -> None:
    """Print a line, without automatic colours or wrapping; what could break or colour it becomes an escape."""
    console.print(single_line(text), highlight=False, soft_wrap=True, markup=False)


def _tabulate(matrix: Matrix, width: int) -> Table:
    tasks = len(matrix[0]) if matrix else 0
    digits = ".1f" if 16 + 6 * tasks <= width else ".0f"
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("t", *map(str, range(1, tasks + 1)), "mean so far"):
        table.add_column(heading, justify="right", no_wrap=True)
    for t, row in enumerate(matrix, 1):
        mean = average_accuracy(matrix, t) or 0.0
        table.add_row(str(t), *(format(100 * a, digits) for a in row), format(100 * mean, ".1f"))
    return table
