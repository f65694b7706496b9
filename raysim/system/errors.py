"""The errors that raysim shows a user in one line."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")]
RAYSIM = Path(__file__).resolve().parents[1]


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


class NotWritten(RunError):
    """A file of a run could not be written: the disk is full, or the directory is gone."""


class Diverged(RunError):
    """A client sent values not finite or too large to be added exactly, or the server's model is not finite."""


class WrongResult(RunError):
    """Code of the user's own returned what its kind must not; `locate_errors` adds where in the run."""

    located = False


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
def locate_errors(where: str) -> Iterator[None]:
    """Note on an exception where in the run it happened, such as `client 3, round 5`; the innermost place counts."""
    try:
        yield
    except WrongResult as error:
        if error.located:
            raise
        located = WrongResult(f"{error}; {where}")
        located.located = True
        raise located from None
    except (RunError, ConfigError):  # they say it themselves
        raise
    except (Exception, SystemExit) as error:
        if vars(error).setdefault("where", where) is where:
            error.add_note(where)
        raise


@contextmanager
def convert_to_run_error(advice: str = "--local helps to debug it") -> Iterator[None]:
    """Turn an exception of a method's or a model's own code into a RunError, with its traceback as a note."""
    try:
        yield
    except (RunError, ConfigError):
        raise
    except (Exception, SystemExit) as error:
        brief = RunError(f"{describe_error(error)}; {advice}")
        brief.add_note("".join(traceback.format_exception(error)).rstrip())
        raise brief from None


def describe_error(error: BaseException) -> str:
    """Return an exception in one line: what it says, where in the user's own code it comes from, and its notes."""
    said = f"{type(error).__name__}: {error}".rstrip(": ").replace("\n", ", ")
    return "; ".join([said + _own_place(error), *getattr(error, "__notes__", ())])


def _own_place(error: BaseException) -> str:
    """Return the function of the user's own that raysim called, and the innermost line of their code, in brackets."""
    function = place = ""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        code, file = frame.f_code, Path(frame.f_code.co_filename)
        if file.is_relative_to(RAYSIM):
            if place:
                break
        elif not file.name.startswith("<") and not any(map(file.is_relative_to, INSTALLED)):
            function, place = code.co_qualname, place or f"{file}:{line}"
    return f" ({function}, {place})" if place else ""
