"""The errors that raysim shows a user in one line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager


def single_line(text: str) -> str:
    """Return text with everything that could break or colour a terminal's line written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class ConfigError(Exception):
    """The config or command line is wrong; str() is one line that says where, what was found, what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(single_line(message))


class Unreachable(ConfigError):
    """No cluster answers at resources.address, or it refuses the connection."""


class RunError(Exception):
    """The run failed; str() is one line that says where and what to do next. Exit status 1."""

    def __init__(self, message: str) -> None:
        super().__init__(single_line(message))


class Diverged(RunError):
    """A client sent values not finite or too large to be added exactly, or the server's model is not finite."""


class Lost(RunError):
    """A process of the run was lost with its state; the run can return to its last checkpoint."""

    def __init__(self, who: str, how: str, advice: str = "") -> None:
        super().__init__(f"{who} died: {how}")
        self.who = who
        self.how = how
        self.advice = advice

    def __reduce__(self) -> tuple[type[Lost], tuple[str, str, str]]:
        return Lost, (self.who, self.how, self.advice)


@contextmanager
def convert_to_run_error(advice: str = "--local helps to debug it") -> Iterator[None]:
    """Turn an exception of a method's or a model's own code into a RunError, with its traceback as a note."""
    try:
        yield
    except (RunError, ConfigError):
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = "".join(traceback.format_exception_only(error)).strip()  # including its notes, such as client and round
        brief = RunError(f"{said.replace(chr(10), ', ')} ({frame.filename}:{frame.lineno}); {advice}")
        brief.add_note("".join(traceback.format_exception(error)).rstrip())
        raise brief from None
