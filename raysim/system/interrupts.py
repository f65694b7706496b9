"""The first Ctrl-C lets the present round end; a second, SIGTERM or SIGHUP (a closed terminal) ends the run at once."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

AT_ONCE = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible(
    stop: Callable[[], None], say: Callable[[str], None], doing: Callable[[], str] = lambda: "finishing this round"
) -> Iterator[None]:
    """Have the first Ctrl-C end the run after the present round; a second, or AT_ONCE, at once but with clean-up.

    `doing` says what the first one waits for.

    Raises:
        KeyboardInterrupt: at the second, or AT_ONCE; instead of whatever else the block then fails with, as Ray's
            processes may have been sent the same signal.
    """
    heard = False

    def at_once(signum: int, frame: object) -> None:
        nonlocal heard
        heard = True
        raise KeyboardInterrupt

    def first(signum: int, frame: object) -> None:
        signal.signal(signal.SIGINT, at_once)
        # in a separate thread: the main one may be inside a call to Ray, which is not reentrant
        threading.Thread(target=stop, daemon=True).start()
        with suppress(RuntimeError):  # the signal came during a write, which is not reentrant
            say(f"{doing()}, then stopping with a checkpoint; Ctrl-C again leaves at once, without one")

    with _handle({signal.SIGINT: first, **dict.fromkeys(AT_ONCE, at_once)}):
        try:
            yield
        except Exception as error:
            if heard:
                raise KeyboardInterrupt from error
            raise


@contextmanager
def delay_interrupts(say: Callable[[], object] | None = None) -> Iterator[None]:
    """Delay Ctrl-C and AT_ONCE to the end of a block that would leave something behind if it were interrupted.

    Args:
        say: called at the first one, to tell the user what is waited for.

    Raises:
        KeyboardInterrupt: at the end, if one of them arrived meanwhile; also where the block failed after it.
    """
    pressed: list[int] = []

    def later(signum: int, frame: object) -> None:
        if say is not None and not pressed:
            with suppress(RuntimeError):  # as above
                say()
        pressed.append(signum)

    with _handle(dict.fromkeys((signal.SIGINT, *AT_ONCE), later)):
        try:
            yield
        except Exception as error:
            if pressed:
                raise KeyboardInterrupt from error
            raise
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def postpone_interrupts() -> Iterator[None]:
    """Have Ctrl-C and AT_ONCE come after a short block that must not be cut, each to its own handler."""
    pressed: list[int] = []
    try:
        with _handle(dict.fromkeys((signal.SIGINT, *AT_ONCE), lambda number, frame: pressed.append(number))):
            yield
    finally:
        for number in pressed:
            signal.raise_signal(number)


@contextmanager
def keep_termination() -> Iterator[None]:
    """Have SIGTERM interrupt a block that sets a handler of its own which exits, as Ray does; keep the one before.

    Raises:
        KeyboardInterrupt: that handler exited.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def block_hangups() -> Iterator[None]:
    """Block SIGHUP in this context, and for good in processes that start in it: their end would be this one's fault."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _handle(handlers: Mapping[signal.Signals, Callable[[int, Any], object]]) -> Iterator[None]:
    """Set handlers of signals in this context; outside the main thread, where none can be set, do nothing.

    What this process was told to ignore (nohup) stays ignored, except SIGINT, which background jobs ignore by default.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = {n: h for n, h in handlers.items() if n == signal.SIGINT or signal.getsignal(n) != signal.SIG_IGN}
    previous = {number: signal.signal(number, handler) for number, handler in heard.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: the previous handler was not set from Python
