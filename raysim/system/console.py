"""A console for standard output, by rich."""

from typing import TextIO

from rich.console import Console

from raysim.system.output import has_terminal, unfailing_stream


def make_console(stream: TextIO | None) -> Console:
    """Return a console to which writing never fails. It has colors and moving lines only on a terminal.

    By itself, rich also has them if FORCE_COLOR is set, as notebooks do for the commands of their cells.
    """
    return Console(file=unfailing_stream(stream), force_terminal=None if has_terminal(stream) else False)
