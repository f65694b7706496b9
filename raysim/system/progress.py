"""How far a command is: one moving line on a terminal, and elsewhere a plain line after every 30 s of silence."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from raysim.system.console import make_console, print_line
from raysim.system.output import has_terminal

SILENCE = 30.0  # seconds without a line after which a log gets one
BETWEEN_PICTURES = 0.1  # seconds, on a terminal
BETWEEN_LOOKS = 1.0  # seconds, at how long a log has been silent
SHORTEST, LONGEST = 8, 40  # columns of a bar
TURNS, ASCII_TURNS = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "-\\|/"  # a sign that turns as long as nothing can be counted


class Tell(Protocol):
    """A function that receives what is done now, in words, and the share of it that is done, if that is known."""

    def __call__(self, text: str, share: float | None = None) -> object:
        """Receive it."""


def tell_nothing(text: str, share: float | None = None) -> None:
    """Receive progress that is not shown."""


_tell: ContextVar[Tell] = ContextVar("_tell", default=tell_nothing)
_painters: list["_Painter"] = []  # those at work


@contextmanager
def progress_told(tell: Tell) -> Iterator[None]:
    """Have progress in this context told to this function, also from other threads."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def current_tell() -> Tell:
    """Return the function that receives the progress of this context, as for another thread."""
    return _tell.get()


def tell_progress(text: str, share: float | None = None) -> None:
    """Tell how far the work of this context is, such as `reading images: 12 of 200`."""
    _tell.get()(text, share)


class ProgressLine:
    """A line of progress: what a command does now, how far it is, and the time since its start."""

    def __init__(self, console: Console, text: str) -> None:
        self._console = console
        self._told: tuple[str, float | None] = text, None
        self._began = time.monotonic()

    def tell(self, text: str, share: float | None = None) -> None:
        """Note what is done now."""
        self._told = text, share

    def render(self) -> Table:
        """Return the line for a terminal."""
        text, share = self._told
        return draw_line(self._console, text, self._elapsed(), share)

    def describe(self) -> str:
        """Return the line for a log."""
        return f"{self._told[0]}, {self._elapsed()}"

    def _elapsed(self) -> str:
        return format_clock(time.monotonic() - self._began)


class Silence:
    """How long a log has been silent.

    Args:
        clock: tells the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()

    def end(self) -> None:
        """Note that the log has a new line."""
        self._last = self._clock()

    def is_long(self) -> bool:
        """Return whether the log needs a line, which then ends the silence."""
        if self._clock() - self._last < SILENCE:
            return False
        self.end()
        return True


@contextmanager
def show_progress(text: str, stream: TextIO | None = None, quiet: bool = False) -> Iterator[ProgressLine]:
    """Show a line of progress in this context, which `tell_progress` changes. It leaves no trace on a terminal.

    Args:
        text: what is done first.
        stream: where the line goes; by default standard output if it is a terminal, otherwise standard error.
        quiet: show nothing.
    """
    if stream is None:
        stream = sys.stdout if has_terminal(sys.stdout) else sys.stderr
    console = make_console(stream)
    progress = ProgressLine(console, text)
    silence = Silence(time.monotonic)
    showing = keep_showing(console, progress.render, progress.describe, silence, stays=False)
    with nullcontext() if quiet else showing, progress_told(progress.tell):
        yield progress


@contextmanager
def keep_showing(
    console: Console, render: Callable[[], RenderableType], describe: Callable[[], str], silence: Silence, stays: bool
) -> Iterator[None]:
    """Draw something again and again at the end of a terminal. Elsewhere, print a line when a log is silent for long.

    Args:
        console: the terminal, file or pipe.
        render: returns what is drawn.
        describe: returns the line.
        silence: of the log.
        stays: whether the last drawing stays on the terminal.
    """
    if not console.is_terminal:

        def look() -> None:
            if silence.is_long():
                print_line(console, describe())

        with _painting(look, BETWEEN_LOOKS):
            yield
        return
    live = Live(
        console=console,
        get_renderable=render,
        auto_refresh=False,
        transient=not stays,
        redirect_stdout=has_terminal(sys.stdout),
        redirect_stderr=has_terminal(sys.stderr),
    )
    with live:
        live.refresh()
        with _painting(live.refresh, BETWEEN_PICTURES):
            yield


class _Painter:
    """A thread that calls a function again and again, and can be stopped and started."""

    def __init__(self, paint: Callable[[], object], seconds: float) -> None:
        self._paint, self._seconds = paint, seconds

    def start(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, args=(self._over,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _repeat(self, over: threading.Event) -> None:
        while not over.wait(self._seconds):
            self._paint()


@contextmanager
def _painting(paint: Callable[[], object], seconds: float) -> Iterator[None]:
    painter = _Painter(paint, seconds)
    painter.start()
    _painters.append(painter)
    try:
        yield
    finally:
        _painters.remove(painter)
        painter.stop()


@contextmanager
def still_displays() -> Iterator[None]:
    """Stop the threads of displays in this context: in a child that is forked, their locks might stay locked."""
    stopped = [*_painters]
    for painter in stopped:
        painter.stop()
    try:
        yield
    finally:
        for painter in stopped:
            painter.start()


def draw_line(console: Console, before: str, behind: str, share: float | None) -> Table:
    """Return a line as wide as a console: texts around a bar, or, without a share, behind a sign that turns."""
    room = console.width - len(before) - len(behind) - 2
    row = Table.grid(padding=(0, 1, 0, 0))
    words = [Text(text, no_wrap=True, overflow="ellipsis") for text in (before, behind)]
    if share is None:
        turns = ASCII_TURNS if console.options.ascii_only else TURNS
        row.add_row(Text(turns[int(time.monotonic() / BETWEEN_PICTURES) % len(turns)], "cyan"), *words)
    elif room < SHORTEST:
        row.add_row(*words[not before :])
    else:
        row.add_row(*words[: bool(before)], ProgressBar(1.0, share, max(1, min(room, LONGEST))), words[1])
    return row


def format_clock(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
