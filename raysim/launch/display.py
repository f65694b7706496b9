"""What displays of runs have in common, and the display of a result; bar.py has what is shown while a run works."""

import sys
from math import isclose

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raysim.config import Config
from raysim.engine.events import Caution, Event, Notice, RolledBack, RoundDone
from raysim.evaluation.accuracy_matrix import (
    SEEN,
    Matrix,
    average_accuracy,
    describe_mean,
    grade,
    metric_of,
    protocol_label,
)
from raysim.evaluation.scoring import describe_clients
from raysim.launch.amounts import in_number
from raysim.launch.announcing import describe_next, tell_unfinished
from raysim.objectives import Metric
from raysim.records.result import Result
from raysim.system.caller import warn_caller
from raysim.system.capacity import MIB
from raysim.system.colors import choose_text_color, mix_sequence
from raysim.system.console import make_console, print_command, print_line

MOST_REQUESTS = 5  # to forget, that are printed
# metrics over samples, by task; the same if the tasks' test sets are equally large
SAME_IF_EQUALLY_LARGE = {
    "average_incremental_accuracy_by_task": "average_incremental_accuracy",
    "final_accuracy": "average_accuracy",
}


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
    """Display of a run; this class shows only its notices and returns to checkpoints, if there is a console."""

    def take(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, Caution):
            show_warning(self, event.text)
        elif isinstance(event, Notice):
            self.say(event.text)
        elif isinstance(event, RolledBack):
            self.say(f"{event.why}; resuming from round {event.round}")


class NoDisplay(RunDisplay):
    """Display of nothing at all, as with --quiet."""


def show_warning(display: RunDisplay, text: str) -> None:
    """Show a warning, in a call from Python as one of Python's."""
    if type(display) is RunDisplay:  # a call from Python
        warn_caller(text)
    display.say(text)


def accuracy_so_far(event: RoundDone, config: Config) -> str:
    """Return the mean accuracy, or other metric, over the tasks so far, by protocol, as text.

    Class-IL among the seen classes is omitted: a line of a terminal has no room for it.
    """
    task, metric = event.so_far, config.objective.make().metric
    return ", ".join(
        describe_mean(protocol, sum(row[:task]) / task, metric, config.evaluation.top_k)
        for protocol, row in (event.evaluation or {}).items()
        if protocol != SEEN
    )


def show_result(result: Result, console: Console, config: Config, local: bool) -> None:
    """Print the accuracy matrices, the metrics, the place of the files, and what to do next; see `describe_next`."""
    for protocol, values in result.evaluation.items():
        if not values["accuracy"]:  # the run was stopped in its first task
            continue
        in_step = values["forgetting"] is not None or len(values["accuracy"]) < 2
        when = "task t" if in_step else f"t/{len(values['accuracy'])} of the run"
        label, metric = protocol_label(protocol, result.top_k, result.tested), metric_of(values)
        if protocol == SEEN and values["accuracy"] == result.evaluation["class_il"]["accuracy"]:
            print_line(console, f"{metric.title}, {label}: the same")
            continue
        print_line(console, f"{metric.title}, {label}: row t is after {when}, column i is on task i")
        console.print(_tabulate(values["accuracy"], console, metric, in_step))
        for name, matrix in (("worst client", values.get("worst")), ("deviation over clients", values.get("std"))):
            if matrix:
                print_line(console, f"{name}, by task, at the end: {', '.join(f'{100 * a:.1f}' for a in matrix[-1])}")
        said = {key: v for key, v in values.items() if v is None or isinstance(v, float)}
        if (loss := said.get("final_forgetting")) is None or loss == -(values["backward_transfer"] or 0.0):
            said.pop("final_forgetting", None)  # it says nothing new
        for key, same in SAME_IF_EQUALLY_LARGE.items():
            if isclose(said.get(key) or 0.0, said.get(same) or 0.0, rel_tol=1e-9):
                said.pop(key, None)
        numbers = {key.replace("_", " "): v for key, v in said.items()}
        shown = {
            key.replace("accuracy", metric.name): "-" if v is None else metric.figure(v) for key, v in numbers.items()
        }
        print_line(console, ", ".join(f"{name} {figure}" for name, figure in shown.items()))
        console.print()
    for protocol, found in (result.per_client or {}).items():
        print_line(console, describe_clients(protocol, found, result.top_k))
    for request in result.forgotten[:MOST_REQUESTS]:
        print_line(console, request["said"])
    if (more := len(result.forgotten) - MOST_REQUESTS) > 0:
        print_line(console, f"{more} more requests to forget: forgotten in summary.json")
    if unfinished := tell_unfinished(result):
        print_line(console, unfinished)
    stopped = f", stopped by {result.stopped_by}" if result.stopped_by else ""
    print_line(
        console,
        f"{result.status}{stopped}: {in_number(result.rounds, 'round')} in {result.seconds:.0f} s, "
        f"{result.bytes_up / MIB:.1f} MiB up, {result.bytes_down / MIB:.1f} MiB down",
    )
    print_line(console, f"run directory: {result.directory}")
    for what, command in describe_next(result, config, local):
        print_command(console, f"{what + ':':<14} {command}")


def result_console() -> Console:
    """Return a console for a result: as wide as the terminal, or, in a file, as the widest matrix."""
    console = make_console(sys.stdout)
    if not console.is_terminal:
        console.width = 1000
    return console


def _tabulate(matrix: Matrix, console: Console, metric: Metric, in_step: bool) -> Table:
    """Return the matrix as a table. Cells are colored by value, except those of tasks that are not trained yet."""
    tasks = len(matrix[0]) if matrix else 0
    narrow = 16 + 6 * tasks > console.width
    style = _shade if console.color_system in ("256", "truecolor") else _color
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for heading in ("t", *map(str, range(1, tasks + 1)), "mean so far"):
        table.add_column(heading, justify="right", no_wrap=True)
    grades = grade(matrix, metric)
    for t, row in enumerate(matrix, 1):
        figures = (format(100 * a, ".0f") if narrow and metric.unit == "%" else metric.figure(a) for a in row)
        styles = ("dim" if in_step and task > t else style(share) for task, share in enumerate(grades[t - 1], 1))
        cells = (Text(figure, style) for figure, style in zip(figures, styles, strict=True))
        table.add_row(str(t), *cells, metric.figure(average_accuracy(matrix, t) or 0.0))
    return table


def _color(share: float) -> str:
    """Return a style for a terminal with few colors, in which no background is sure to be readable."""
    return ("red", "yellow", "green")[min(2, int(3 * share))]


def _shade(share: float) -> str:
    """Return a style: a background by value, and text that can be read on it."""
    return f"{choose_text_color(share)} on rgb({','.join(map(str, mix_sequence(share)))})"
