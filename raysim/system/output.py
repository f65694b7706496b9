"""Standard output and standard error of a command: a display that cannot be written to ends no run."""

import os
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast

STYLES = {"bold": "1", "red": "1;31", "cyan": "36"}  # codes of ECMA-48


class Output:
    """A stream of text; what cannot be written (a full disk, a broken pipe, a closed file) is dropped from then on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text, if it can be written."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Write out the buffer, if it can be written."""
        self._try(self._stream.flush)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except (OSError, ValueError):  # ValueError: it is closed
            with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())  # Python writes out its buffer once more when it ends


def has_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream goes to a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def has_colors(stream: TextIO | None) -> bool:
    """Return whether a stream goes to a terminal with colors, and the user has not set NO_COLOR."""
    return has_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: TextIO | None) -> str:
    """Return text in a style, such as "bold" or "red", if a stream has colors."""
    return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if has_colors(stream) else text


def wrap_words(line: str, width: int, indent: int = 0) -> list[str]:
    """Return a line as lines of at most this width, indented after the first. A longer word, as a path, stays whole."""
    deeper = " " * min(indent, width // 2)
    return textwrap.wrap(line, width, subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False) or [
        line
    ]


def unfailing_stream(stream: TextIO | None) -> TextIO | None:
    """Return a stream to which writing never fails; None is that of a process without one."""
    return None if stream is None else cast(TextIO, Output(stream))


@contextmanager
def unfailing_output(also_results: bool) -> Iterator[None]:
    """Let no failure to write to standard error, and with `also_results` to standard output, be an error here.

    A descriptor of these that was closed becomes /dev/null, so that no file that is opened later is written to instead.
    A character that standard output's encoding lacks becomes an escape, as on standard error.
    """
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(spare, True)
    os.close(spare)
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    before = sys.stdout, sys.stderr
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", errors="backslashreplace", closefd=False)
    if sys.stderr is None:  # Ray does not start without one
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    if also_results:
        sys.stdout = cast(TextIO, Output(sys.stdout))
    sys.stderr = cast(TextIO, Output(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def divert_errors(log: Path) -> Iterator[None]:
    """Have what is written to standard error's descriptor in this context, but not by sys.stderr, go to a log.

    Ray's C++ part writes there, in paragraphs with stack traces. A log without a word is deleted.
    """
    before = sys.stderr
    kept = os.dup(2)
    with log.open("ab") as file, os.fdopen(kept, "w", buffering=1, errors="backslashreplace") as shown:
        if before is not None:
            before.flush()
            with suppress(OSError, ValueError):  # it has no descriptor
                if before.fileno() == 2:
                    sys.stderr = cast(TextIO, Output(shown))
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            sys.stderr = before
            with suppress(OSError):
                if not log.stat().st_size:
                    log.unlink()


@contextmanager
def buffer_stderr() -> Iterator[None]:
    """Buffer the standard error, also of C++ code. Drop it if an error is raised: the error explains the failure."""
    if sys.stderr is not None:  # the process began without one
        sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
            kept.seek(0)
            os.write(before, kept.read())
        finally:
            os.dup2(before, 2)
            os.close(before)
