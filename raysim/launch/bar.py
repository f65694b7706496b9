"""The bar of a run on a terminal or in a notebook: what it does while it starts, then rounds, accuracy and time."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from html import escape
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from raysim.config import Config
from raysim.data.downloading import downloads_reported
from raysim.engine.events import Event, RoundDone, Started, StartStep
from raysim.launch.display import NoDisplay, RunDisplay, RunLines, accuracy_so_far, print_line
from raysim.system.console import make_console

SHORTEST, LONGEST = 8, 40  # columns of a bar
SECONDS = 0.25  # between two pictures of it


class LiveRun(RunDisplay):
    """The state of a bar: the step while the run starts, then task, round, loss, accuracy so far and time left."""

    def __init__(self, console: Console, config: Config) -> None:
        self.console: Console = console
        self._tasks = config.scenario.tasks
        self._config = config
        self._began = time.monotonic()
        self._stage = "starting"
        self._first = self._round = self._rounds = 0
        self._running = self._latest = 0.0  # when rounds began, and when the latest ended
        self._task = self._loss = self._accuracy = ""

    def take(self, event: Event) -> None:
        """Note what the event says."""
        super().take(event)
        if isinstance(event, StartStep):
            self._stage, self._rounds = event.text, 0
        elif isinstance(event, Started):
            self._task = f"task 1/{self._tasks}" if not event.done else f"resuming from round {event.done}"
            self._rounds, self._first, self._round = event.rounds, event.done, event.done
            self._running = self._latest = time.monotonic()
        elif isinstance(event, RoundDone):
            self._latest = time.monotonic()
            self._round, self._task = event.round, f"task {event.tasks[-1]}/{self._tasks}"
            self._loss = "" if event.loss is None else f"loss {event.loss:.3f}"
            if event.evaluation:
                self._accuracy = accuracy_so_far(event, self._config)

    @property
    def done(self) -> float:
        """The part of the rounds that is done."""
        return self._round / self._rounds if self._rounds else 0.0

    def words(self, width: int) -> tuple[str, str]:
        """Return the texts before and after the bar, shortened to fit the width."""
        elapsed = clock(time.monotonic() - self._began)
        if not self._rounds:
            return self._stage, elapsed
        rounds, left = f"round {self._round}/{self._rounds}", self._left()
        full = [rounds, " ".join([self._loss, "", self._accuracy]).strip(), f"{elapsed} · left {left}"]
        shorter = [rounds, self._accuracy, f"left {left}"]
        for parts in (full, shorter):
            behind = " ".join(filter(None, parts))
            if len(self._task) + SHORTEST + len(behind) + 2 <= width:
                return self._task, behind
        return "", behind

    def render(self) -> Table:
        """Return the line for the console."""
        before, behind = self.words(self.console.width)
        room = self.console.width - len(before) - len(behind) - 2
        bar = ProgressBar(total=1.0, completed=self.done, width=max(1, min(room, LONGEST)), pulse=not self._rounds)
        row = Table.grid(padding=(0, 1, 0, 0))
        words = [Text(text, no_wrap=True, overflow="ellipsis") for text in (before, behind)]
        if room < SHORTEST:
            row.add_row(*words[not before :])
        else:
            row.add_row(*words[: bool(before)], bar, words[1])
        return row

    def _left(self) -> str:
        """Return the time left, as the rounds since the start took, or dashes before there is one."""
        rounds = self._round - self._first
        if not rounds:
            return "-:--:--"
        whole = (self._latest - self._running) / rounds * (self._rounds - self._round)
        return clock(max(0.0, whole - (time.monotonic() - self._latest)))


class NotebookRun(LiveRun):
    """A bar in the output of a notebook's cell, by what every browser has."""

    def __init__(self, config: Config) -> None:
        super().__init__(Console(file=sys.stdout, force_jupyter=False, width=120), config)
        self._handle: Any = None
        self._shown = 0.0

    def take(self, event: Event) -> None:
        """Draw the bar anew, if the last picture is old enough."""
        super().take(event)
        if time.monotonic() - self._shown >= SECONDS:
            self.draw()

    def draw(self) -> None:
        """Draw the bar in its place."""
        from IPython.display import HTML, display  # there where this is called

        before, behind = self.words(120)
        state = f"value='{self.done:.4f}' " if self._rounds else ""
        picture = HTML(f"{escape(before)} <progress {state}max='1'></progress> {escape(behind)}")
        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)
        self._shown = time.monotonic()


@contextmanager
def open_run_display(config: Config, quiet: bool) -> Iterator[RunDisplay]:
    """Open the display of a run that suits the output: a terminal, a notebook, a file or pipe, or nothing.

    What cannot be written is left out.
    """
    if quiet:
        yield NoDisplay()
        return
    console = make_console(sys.stdout)
    if console.is_jupyter:
        shown = NotebookRun(config)
        yield shown
        shown.draw()
    elif console.is_terminal:
        bar = LiveRun(console, config)
        with Live(console=console, get_renderable=bar.render, refresh_per_second=1 / SECONDS):
            yield bar
    else:
        yield RunLines(console, config)


def show_downloads(lines: Iterable[str]) -> None:
    """Print lines as they come, and below them, on a terminal, how far a download is."""
    console = make_console(sys.stdout)
    status = console.status("reading the data")
    with status if console.is_terminal else nullcontext(), downloads_reported(status.update):
        for line in lines:
            print_line(console, line)


def clock(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
