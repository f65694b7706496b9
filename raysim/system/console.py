"""A console for standard output, by rich, and lines on it."""

from typing import TextIO

from rich.console import Console

from raysim.system.errors import single_line
from raysim.system.output import has_terminal, unfailing_stream, wrap_words


def make_console(stream: TextIO | None) -> Console:
    """Return a console to which writing never fails. It has colors and moving lines only on a terminal.

    By itself, rich also has them if FORCE_COLOR is set, as notebooks do for the commands of their cells.
    """
    return Console(file=unfailing_stream(stream), force_terminal=None if has_terminal(stream) else False)


def print_line(console: Console, text: str) -> None:
    """Print a line, on a terminal broken between words; what could break or color it otherwise becomes an escape."""
    line = single_line(text)
    _print(console, "\n".join(wrap_words(line, console.width)) if console.is_terminal else line)


def print_command(console: Console, text: str) -> None:
    """Print a line with a command, which must stay one line to be copied."""
    _print(console, single_line(text))


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
