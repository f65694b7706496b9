"""Functions that are carried out at the same time, each in a process of its own."""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import torch

from raysim.system.capacity import CAN_FORK
from raysim.system.errors import ConfigError, RunError
from raysim.system.progress import still_displays, tell_progress

Value = TypeVar("Value")


def in_turn(functions: Sequence[Callable[[], Value]], doing: str = "working") -> list[Value]:
    """Return the results of these functions, carried out in this process. `doing` says what they do."""
    results: list[Value] = []
    for function in functions:
        _tell_of(doing, len(results), len(functions))
        results.append(function())
    return results


def at_once(functions: Sequence[Callable[[], Value]], doing: str = "working") -> list[Value]:
    """Return the results of these functions, carried out at the same time in forked processes.

    A process with a second Python thread carries them out itself: in a child, a lock that the thread holds would stay
    locked. Threads of displays are stopped during the forks. A process that uses a GPU also carries them out itself, as
    its children could not use it. Threads of torch's own are idle now, and a child computes on one thread.

    Args:
        functions: the functions.
        doing: says in the display what they do.

    Raises:
        RunError: of one of the functions, or its process was killed.
        ConfigError: of one of the functions.
    """
    with still_displays():
        forks = CAN_FORK and threading.active_count() == 1 and not torch.cuda.is_initialized()
        if forks:
            sys.stdout.flush()  # or each child would write what is pending once more
            children = [_start(function) for function in functions]
    if not forks:
        return in_turn(functions, doing)
    outcomes: list[Any] = []
    for child in children:
        _tell_of(doing, len(outcomes), len(children))
        outcomes.append(_receive(*child))
    for outcome in outcomes:
        if isinstance(outcome, RunError | ConfigError):
            raise outcome
    return outcomes


def _tell_of(doing: str, done: int, total: int) -> None:
    tell_progress(f"{doing}: {done + 1} of {total}", done / total)


def _start(function: Callable[[], object]) -> tuple[int, int]:
    """Fork a process that carries out the function. Return its id, and the file from which to read its result."""
    result, into = os.pipe()
    child = os.fork()
    if not child:
        os.close(result)
        _carry_out(function, into)
    os.close(into)
    return child, result


def _carry_out(function: Callable[[], object], into: int) -> NoReturn:
    """Write the function's result, or its error, and end this process."""
    status = 1
    try:
        torch.set_num_threads(1)
        try:
            result = function()
        except (RunError, ConfigError) as error:
            result = error
        with os.fdopen(into, "wb") as file:
            pickle.dump(result, file)
        status = 0
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(status)  # what the parent does at its end is not the child's to do


def _receive(child: int, result: int) -> Any:
    """Return a child's result or error once it has ended."""
    with os.fdopen(result, "rb") as file:
        text = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        killed = signal.Signals(-code).name
        return RunError(
            f"the process of a rehearsal was killed by {killed}" + "; memory was lacking" * (killed == "SIGKILL")
        )
    if code:
        return RunError("the process of a rehearsal ended without a result; its traceback is above")
    return pickle.loads(text)
