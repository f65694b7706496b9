"""Ctrl-C and SIGTERM: the first lets the round in progress end, the second leaves at once but tidily."""

from __future__ import annotations

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

    with _handled({signal.SIGINT: first, signal.SIGTERM: signal.default_int_handler}):
        yield


@contextmanager
def later() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait: what is half started, half stopped or half written would leave something behind."""
    pressed: list[int] = []

    def note(signum: int, frame: object) -> None:
        pressed.append(signum)

    with _handled({signal.SIGINT: note, signal.SIGTERM: note}):
        yield
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def _handled(handlers: Mapping[signal.Signals, Callable[[int, Any], object]]) -> Iterator[None]:
    """Handle signals so while this lasts; in another thread than the main one nothing can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)  # none: what was there did not come from Python
