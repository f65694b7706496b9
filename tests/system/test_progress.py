"""How far a command is: a moving line on a terminal, and in a log a plain line after 30 s of silence."""

import io
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from raysim.system import progress
from raysim.system.children import at_once
from raysim.system.console import print_command, print_line
from raysim.system.progress import (
    ProgressLine,
    Silence,
    current_tell,
    draw_line,
    keep_showing,
    progress_told,
    show_progress,
    still_displays,
    tell_progress,
)


class Terminal(io.StringIO):
    """A screen that keeps everything that was written to it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that stands still until a test sets its `seconds`."""
    clock = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.seconds)
    monkeypatch.setenv("TERM", "xterm")
    return clock


def drawn(width: int, before: str, behind: str, share: float | None) -> str:
    written = io.StringIO()
    Console(width=width, file=written, force_terminal=False).print(
        draw_line(Console(width=width), before, behind, share)
    )
    (line,) = written.getvalue().splitlines()
    return line.rstrip()


def test_a_log_gets_a_line_after_30_seconds_without_one() -> None:
    seconds = [0.0]
    silence = Silence(lambda: seconds[0])

    def at(time: float) -> bool:
        seconds[0] = time
        return silence.is_long()

    assert [time for time in range(100) if at(float(time))] == [30, 60, 90]
    at(100.0)
    silence.end()
    assert [time for time in range(100, 135) if at(float(time))] == [130]


def test_a_log_is_told_what_is_done_and_for_how_long(now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test sets the clock, and the thread looks at it again and again."""
    monkeypatch.setattr(progress, "BETWEEN_LOOKS", 0.001)
    log = io.StringIO()
    with show_progress("loading PyTorch", log):
        tell_progress("plots 4 of 11", 4 / 11)
        assert log.getvalue() == ""
        now.seconds += 90
        while not log.getvalue().endswith("\n"):
            pass
        for _ in range(20):  # no other line comes before the next 30 s are over
            threading.Event().wait(0.002)
    assert log.getvalue() == "plots 4 of 11, 0:01:30\n"


def test_a_terminal_has_the_first_word_at_once_and_nothing_at_the_end(now: SimpleNamespace) -> None:
    screen = Terminal()
    with show_progress("loading PyTorch", screen):
        assert "loading PyTorch 0:00:00" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K")  # the line is deleted
    assert screen.getvalue().count("\n") == screen.getvalue().count("\x1b[1A")


def test_quiet_is_silent() -> None:
    screen = Terminal()
    with show_progress("loading PyTorch", screen, quiet=True) as shown:
        shown.tell("plots 4 of 11")
    assert screen.getvalue() == ""


@pytest.mark.parametrize(("terminals", "where"), [("out err", "out"), ("err", "err"), ("", "err")])
def test_output_that_is_piped_stays_clean(
    terminals: str, where: str, now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "BETWEEN_LOOKS", 0.001)
    streams: dict[str, Any] = {name: Terminal() if name in terminals else io.StringIO() for name in ("out", "err")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, f"std{name}", stream)
    with show_progress("loading PyTorch"):
        now.seconds += 40
        while "loading PyTorch" not in streams[where].getvalue():
            pass
    assert [name for name, stream in streams.items() if stream.getvalue()] == [where]


def test_a_line_that_cannot_count_turns(now: SimpleNamespace) -> None:
    seen = []
    for _ in range(3):
        seen.append(drawn(80, "starting Ray", "0:00:01", None))
        now.seconds += 0.25
    assert len(set(seen)) == 3
    assert {line[1:] for line in seen} == {" starting Ray 0:00:01"}


def test_a_line_that_counts_has_a_bar() -> None:
    """Of 60 columns, the texts, two spaces and one at the end leave 38 for the bar; a fourth of it is done."""
    line = drawn(60, "run 5 of 20", "0:00:01", 0.25)
    assert line.startswith("run 5 of 20 ━")
    assert line.endswith(" 0:00:01")
    assert len(line) <= 60
    assert drawn(24, "run 5 of 20", "0:00:01", 0.25) == "run 5 of 20 0:00:01"  # there is no room for it


def test_progress_is_told_to_whoever_asked_for_it() -> None:
    told: list[object] = []

    def tell(text: str, share: float | None = None) -> None:
        told.append((text, share))

    tell_progress("unheard")
    with progress_told(tell):
        tell_progress("heard", 0.5)
        thread = threading.Thread(target=current_tell(), args=("from a thread",))
        thread.start()
        thread.join()
    tell_progress("unheard")
    assert told == [("heard", 0.5), ("from a thread", None)]


def test_no_thread_of_a_display_is_there_in_a_fork() -> None:
    before = threading.active_count()
    with show_progress("loading PyTorch", io.StringIO()):
        assert threading.active_count() == before + 1
        with still_displays():
            assert threading.active_count() == before
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


def test_it_is_told_which_of_several_functions_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)  # so that nothing is forked
    shown = ProgressLine(Console(), "")
    with progress_told(shown.tell):
        assert at_once([shown.describe, shown.describe], "rehearsing") == [
            "rehearsing: 1 of 2, 0:00:00",
            "rehearsing: 2 of 2, 0:00:00",
        ]


def test_what_is_drawn_last_may_stay(now: SimpleNamespace) -> None:
    screen = Terminal()
    console = Console(file=screen, force_terminal=True, width=40)
    with keep_showing(console, lambda: "a table", lambda: "", Silence(time.monotonic), stays=True):
        pass
    assert screen.getvalue().rstrip("\x1b[?25h").endswith("a table\n")


def test_lines_break_between_words_on_a_terminal_only() -> None:
    text = "quickstart, seed 0: 5 clients, 3 domain-incremental tasks; files go to runs/quickstart/seed-0/a-long-name"
    terminal, log = io.StringIO(), io.StringIO()
    print_line(Console(file=terminal, force_terminal=True, width=30), text)
    print_line(Console(file=log, width=30), text)
    assert terminal.getvalue().splitlines() == [
        "quickstart, seed 0: 5 clients,",
        "3 domain-incremental tasks;",
        "files go to",
        "runs/quickstart/seed-0/a-long-name",
    ]
    assert log.getvalue() == f"{text}\n"


def test_a_command_stays_a_line_that_can_be_copied() -> None:
    terminal = io.StringIO()
    print_command(Console(file=terminal, force_terminal=True, width=10), "raysim report runs/a")
    assert terminal.getvalue() == "raysim report runs/a\n"
