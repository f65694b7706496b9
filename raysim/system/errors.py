"""The errors that raysim shows as one-line messages."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")]
RAYSIM = Path(__file__).resolve().parents[1]


def single_line(text: str) -> str:
    """Return text with all characters escaped that could break or color a terminal's line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class ConfigError(Exception):
    """The config or command line is wrong. The one-line message says where, what was found and what is allowed.

    >>> try:
    ...     raysim.check("quickstart", metods="er")
    ... except raysim.ConfigError as error:
    ...     print(error)
    metods='er': unknown key 'metods'; did you mean 'methods'?

    Args:
        words: what was found and what is allowed.
        place: the file and line, the key, or the KEY=VALUE; the message begins with it.
    """

    def __init__(self, words: str, place: str = "") -> None:
        super().__init__(single_line(f"{place}: {words}" if place else words))
        self.place = single_line(place)

    def lines(self) -> list[str]:
        """Return the message in up to three lines: what was found, the place, and the nearest valid name.

        >>> raysim.ConfigError("found 0, allowed: a whole number >= 1", "seed=0").lines()
        ['error: found 0, allowed: a whole number >= 1', '  --> seed=0']
        """
        words, separator, near = str(self).removeprefix(f"{self.place}: ").partition("; did you mean ")
        lines = [f"error: {words}"]
        if self.place:
            lines.append(f"  --> {self.place}")
        if separator:
            lines.append(f"help: did you mean {near}")
        return lines


class Unreachable(ConfigError):
    """No cluster answers at resources.address, or it refuses the connection."""


class RunError(Exception):
    """The run failed (exit status 1). The one-line message says where and what to do next.

    >>> RunError("mine: found no samples, allowed: at least 1")
    RunError('mine: found no samples, allowed: at least 1')
    """

    def __init__(self, message: str) -> None:
        super().__init__(single_line(message))


class NotWritten(RunError):
    """A file of a run could not be written: the disk is full, or the directory is gone."""


class Diverged(RunError):
    """A client sent values that are not finite or too large for exact sums, or the server's model is not finite.

    >>> issubclass(Diverged, RunError)
    True
    """


class WrongResult(RunError):
    """Custom code returned an invalid result. `locate_errors` adds the place in the run."""

    located = False


class Lost(RunError):
    """A process of the run was lost with its state. The run can return to its last checkpoint.

    Attributes:
        who: the lost process.
        how: how it died.
        advice: what the user can do.
    """

    def __init__(self, who: str, how: str, advice: str = "") -> None:
        super().__init__(f"{who} died: {how}")
        self.who = who
        self.how = how
        self.advice = advice

    def __reduce__(self) -> tuple[type[Lost], tuple[str, str, str]]:
        return Lost, (self.who, self.how, self.advice)


@contextmanager
def locate_errors(where: str) -> Iterator[None]:
    """Add a note to an exception with its place in the run, such as `client 3, round 5`. The innermost place counts."""
    try:
        yield
    except WrongResult as error:
        if error.located:
            raise
        located = WrongResult(f"{error}; {where}")
        located.located = True
        raise located from None
    except (RunError, ConfigError):  # their messages have the place
        raise
    except (Exception, SystemExit) as error:
        if vars(error).setdefault("where", where) is where:
            error.add_note(where)
        raise


@contextmanager
def convert_to_run_error(advice: str = "raysim run --local helps to debug it") -> Iterator[None]:
    """Convert an exception of a method's or a model's code into a RunError, with the traceback as a note."""
    try:
        yield
    except (RunError, ConfigError):
        raise
    except (Exception, SystemExit) as error:
        brief = RunError(f"{describe_error(error)}; {advice}")
        brief.add_note("".join(traceback.format_exception(error)).rstrip())
        raise brief from None


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type if it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def describe_error(error: BaseException) -> str:
    """Return an exception as one line: its message, its place in custom code, and its notes."""
    notes = getattr(error, "__notes__", ())
    if str(error) == "generator raised StopIteration" and error.__cause__:  # Python's own error in place of this cause
        error = error.__cause__
    message = f"{type(error).__name__}: {error}".rstrip(": ").replace("\n", ", ")
    return "; ".join([message + _custom_place(error), *getattr(error, "__notes__", notes)])


def _custom_place(error: BaseException) -> str:
    """Return the custom function that raysim called and the innermost line of custom code, in parentheses."""
    function, place = find_custom_frame(error)
    return f" ({function}, {place})" if place else ""


def find_custom_frame(error: BaseException) -> tuple[str, str]:
    """Return the custom function that raysim called last, and the innermost line of its code. Empty if none failed."""
    function = place = ""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        code, file = frame.f_code, Path(frame.f_code.co_filename)
        if file.is_absolute():
            file = file.resolve()  # an environment may be a link to another
        if file.is_relative_to(RAYSIM):
            if place:
                break
        elif not file.name.startswith("<") and not any(map(file.is_relative_to, INSTALLED)):
            function, place = code.co_qualname, place or f"{code.co_filename}:{line}"
    return function, place
