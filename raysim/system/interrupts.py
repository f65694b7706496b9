"""Ctrl-C and SIGTERM: the first lets the round in progress end, the second leaves at once but tidily."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def interruptible(stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """Let the first Ctrl-C end the round in progress; let the second, and SIGTERM, leave at once but tidily."""

    def first(signum: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # in a thread of its own: the main one may be inside a call to Ray, which cannot be entered twice
        threading.Thread(target=stop, daemon=True).start()
        say("stopping after this round; Ctrl-C again leaves at once")

    with _handle({signal.SIGINT: first, signal.SIGTERM: signal.default_int_handler}):
        yield


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM to the end of what would leave something behind if it were only half done.

    Raises:
        KeyboardInterrupt: at the end, where one of the two came meanwhile.
    """
    pressed: list[int] = []
    with _handle(dict.fromkeys((signal.SIGINT, signal.SIGTERM), lambda signum, frame: pressed.append(signum))):
        yield
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def _handle(handlers: Mapping[signal.Signals, Callable[[int, Any], object]]) -> Iterator[None]:
    """Set handlers of signals for a while; in another thread than the main one, where none can be set, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)  # none: what was there did not come from Python
