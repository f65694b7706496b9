"""Ctrl-C and SIGTERM: the first Ctrl-C lets the present round end, a second, or SIGTERM, ends the run at once."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible(stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """Have the first Ctrl-C end the run after the present round, a second, or SIGTERM, at once but with clean-up."""

    def first(signum: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # in a separate thread: the main one may be inside a call to Ray, which is not reentrant
        threading.Thread(target=stop, daemon=True).start()
        say("stopping after this round; Ctrl-C again leaves at once")

    with _handle({signal.SIGINT: first, signal.SIGTERM: signal.default_int_handler}):
        yield


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM to the end of a block that would leave something behind if it were interrupted.

    Raises:
        KeyboardInterrupt: at the end, if one of the two arrived meanwhile.
    """
    pressed: list[int] = []
    with _handle(dict.fromkeys((signal.SIGINT, signal.SIGTERM), lambda signum, frame: pressed.append(signum))):
        yield
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def _handle(handlers: Mapping[signal.Signals, Callable[[int, Any], object]]) -> Iterator[None]:
    """Set handlers of signals in this context; outside the main thread, where none can be set, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: the previous handler was not set from Python
