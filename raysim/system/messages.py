"""Messages of the command line on standard error: mistakes in the input, and warnings of deprecated keys."""

import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from raysim.system.caller import DeprecatedKey
from raysim.system.errors import ConfigError, single_line
from raysim.system.output import has_terminal, paint, wrap_words


def describe_mistake(error: ConfigError) -> str:
    """Return an error for standard error: in up to three lines on a terminal, and in one elsewhere."""
    if not has_terminal(sys.stderr):
        return str(error)
    width = shutil.get_terminal_size().columns
    wrapped = ("\n".join(wrap_words(line, width, 2)) for line in error.lines())
    lines = (line.partition(": ") for line in wrapped)
    styles = {"error": "red", "help": "cyan"}
    return "\n".join(
        paint(f"{label}:", styles[label], sys.stderr) + f" {text}" if label in styles else label + colon + text
        for label, colon, text in lines
    )


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings of deprecated keys as one line in this context, without a place in Python. Others are unchanged."""
    usual = warnings.formatwarning

    def format_plainly(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if issubclass(category, DeprecatedKey):
            return f"{single_line(str(message))}\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = format_plainly
    try:
        yield
    finally:
        warnings.formatwarning = usual
