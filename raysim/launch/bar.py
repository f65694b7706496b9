"""The display of a run while it works: a bar on a terminal or in a notebook, and lines in a log."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from rich.console import Console
from rich.table import Table

from raysim.config import Config
from raysim.engine.events import Event, RoundDone, Started, StartStep
from raysim.launch.display import NoDisplay, RunDisplay, accuracy_so_far
from raysim.system.console import make_console
from raysim.system.progress import SHORTEST, Silence, draw_line, format_clock, keep_showing

SECONDS = 0.25  # between two pictures in a notebook


class LiveRun(RunDisplay):
    """The state of a bar: the step while the run starts, then task, round, loss, accuracy so far and time left."""

    def __init__(self, console: Console, config: Config) -> None:
        self.console: Console = console
        self._tasks = config.scenario.tasks
        self._config = config
        self._began = time.monotonic()
        self._stage = "starting"
        self._share: float | None = None  # of the stage
        self._first = self._round = self._rounds = 0
        self._running = self._latest = 0.0  # when rounds began, and when the latest ended
        self._task = self._loss = self._accuracy = ""

    def take(self, event: Event) -> None:
        """Note what the event says."""
        super().take(event)
        if isinstance(event, StartStep):
            self._stage, self._share, self._rounds = event.text, event.share, 0
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
    def share(self) -> float | None:
        """The share of the rounds, or of a step of the start, that is done; None if it is not known."""
        return self._round / self._rounds if self._rounds else self._share

    def words(self, width: int) -> tuple[str, str]:
        """Return the texts before and after the bar, shortened to fit the width."""
        elapsed = format_clock(time.monotonic() - self._began)
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
        return draw_line(self.console, before, behind, self.share)

    def describe(self) -> str:
        """Return the line for a log."""
        elapsed = format_clock(time.monotonic() - self._began)
        if not self._rounds:
            return f"{self._stage}, {elapsed}"
        parts = (self._task, f"round {self._round} of {self._rounds}", self._loss, self._accuracy)
        return ", ".join([*filter(None, parts), elapsed, f"left {self._left()}"])

    def _left(self) -> str:
        """Return the time left, as the rounds since the start took, or dashes before there is one."""
        rounds = self._round - self._first
        if not rounds:
            return "-:--:--"
        whole = (self._latest - self._running) / rounds * (self._rounds - self._round)
        return format_clock(max(0.0, whole - (time.monotonic() - self._latest)))


class RunLines(LiveRun):
    """A line per evaluation, for logs and pipes."""

    def __init__(self, console: Console, config: Config) -> None:
        super().__init__(console, config)
        self.silence = Silence(time.monotonic)

    def say(self, text: str) -> None:
        """Write a line."""
        super().say(text)
        self.silence.end()

    def take(self, event: Event) -> None:
        """Write a line where the model was evaluated."""
        super().take(event)
        if isinstance(event, RoundDone) and event.evaluation:
            loss = "" if event.loss is None else f", loss {event.loss:.3f}"
            self.say(f"task {event.tasks[-1]}, round {event.round} of {self._rounds}{loss}, {self._accuracy}")


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
        state = "" if self.share is None else f"value='{self.share:.4f}' "
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
        with keep_showing(console, bar.render, bar.describe, Silence(time.monotonic), stays=True):
            yield bar
    else:
        lines = RunLines(console, config)
        with keep_showing(console, lines.render, lines.describe, lines.silence, stays=False):
            yield lines
