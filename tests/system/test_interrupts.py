"""Signals: which of them end a run, and when."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from raysim.system.errors import RunError
from raysim.system.interrupts import block_hangups, delay_interrupts, interruptible, postpone_interrupts


def ignore(*_: object) -> None:
    pass


@pytest.fixture(autouse=True)
def unheard() -> Iterator[None]:
    """Signals that would end the tests do nothing, unless something else is made of them."""
    ending = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, ignore) for number in ending]
    yield
    for number, handler in zip(ending, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_termination_and_a_closed_terminal_end_a_run_at_once(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(ignore, ignore):
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) == ignore


@pytest.mark.parametrize("block", [interruptible(ignore, ignore), delay_interrupts()], ids=["a run", "its start"])
def test_what_the_block_then_fails_with_is_an_interrupt_too(block: AbstractContextManager[None]) -> None:
    """A process of Ray's that was sent the same signal ends as well, and what the run needs to end is gone."""

    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            raise RunError("its process ended")

    with pytest.raises(KeyboardInterrupt), block:
        work()


def test_without_a_signal_it_is_what_it_was() -> None:
    with pytest.raises(RunError), interruptible(ignore, ignore), delay_interrupts():
        raise RunError("its process ended")


def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interruptible(ignore, ignore), delay_interrupts():
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) not in (ignore, signal.SIG_IGN)


def test_the_first_interrupt_says_what_is_done_and_what_a_second_one_does() -> None:
    told: list[str] = []
    with interruptible(ignore, told.append):
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert told == ["finishing this round, then stopping with a checkpoint; Ctrl-C again leaves at once, without one"]


def test_it_says_what_it_waits_for() -> None:
    told: list[str] = []
    with interruptible(ignore, told.append, lambda: "waiting"):
        os.kill(os.getpid(), signal.SIGINT)
    assert told == ["waiting, then stopping with a checkpoint; Ctrl-C again leaves at once, without one"]


def test_an_interrupt_that_must_wait_says_so_once() -> None:
    told: list[str] = []
    waiting = delay_interrupts(lambda: told.append("a moment"))
    waiting.__enter__()
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGHUP):
        os.kill(os.getpid(), number)
    assert told == ["a moment"]
    with pytest.raises(KeyboardInterrupt):
        waiting.__exit__(None, None, None)


@pytest.mark.parametrize("fails", [False, True], ids=["the block ends", "it fails"])
def test_what_is_postponed_comes_after_the_block_to_the_handler_that_was_there(fails: bool) -> None:
    done: list[str] = []

    def work() -> None:
        with postpone_interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("the rest of the block")
            if fails:
                raise RunError("it fails")

    with pytest.raises(KeyboardInterrupt), interruptible(ignore, ignore):
        work()
    assert done == ["the rest of the block"]


def test_a_closed_terminal_does_not_end_the_processes_of_a_run() -> None:
    """They get the signal too; this one ends them in order."""
    child = "import os, signal; os.kill(os.getpid(), signal.SIGHUP); print('alive')"
    with block_hangups():
        told = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
    assert told.stdout == "alive\n"
    assert subprocess.run([sys.executable, "-c", child], check=False).returncode == -signal.SIGHUP


def test_an_interrupt_during_a_write_still_ends_the_run_after_its_round() -> None:
    """A stream refuses a second write in the middle of one, with a RuntimeError."""
    stopped = threading.Event()

    def say(*_: str) -> None:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter>")

    with interruptible(stopped.set, say):
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped.wait(60)
    with pytest.raises(KeyboardInterrupt), delay_interrupts(say):
        os.kill(os.getpid(), signal.SIGINT)
