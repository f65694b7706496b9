"""A mistake on a terminal: what, where and help on lines of their own. Elsewhere the same words are on one line."""

import re
from collections.abc import Callable
from functools import partial

import pytest

from raysim.cli import main
from raysim.system.errors import ConfigError
from raysim.system.messages import describe_mistake


@pytest.fixture
def terminal(on_a_terminal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A function that returns what a wrong command writes to standard error where that is a wide terminal."""
    monkeypatch.setenv("COLUMNS", "120")
    return partial(on_a_terminal, "stderr", 2)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_mistake_has_three_lines_on_a_terminal(terminal: Callable[..., str]) -> None:
    shown = terminal("check", "quickstart", "training.lr=0.1")
    assert plain(shown) == (
        "error: unknown key 'lr'\n  --> training.lr=0.1\nhelp: did you mean 'training.optimizer.lr'?\n"
    )
    assert shown.startswith("\x1b[1;31merror:\x1b[0m ")


def test_without_a_guess_it_has_two(terminal: Callable[..., str]) -> None:
    shown = plain(terminal("check", "quickstart", "clients.count=0"))
    assert shown == "error: found 0, allowed: a whole number >= 1 and <= 1000000\n  --> clients.count=0\n"


def test_a_mistake_of_the_command_line_has_one_or_two(terminal: Callable[..., str]) -> None:
    assert plain(terminal("run", "quikstart")).splitlines()[1:] == [
        "help: did you mean 'quickstart'? `raysim configs` lists all"
    ]


def test_a_long_line_breaks_between_words(terminal: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert plain(terminal("check", "quickstart", "clients.count=0")).splitlines() == [
        "error: found 0, allowed: a whole number",
        "  >= 1 and <= 1000000",
        "  --> clients.count=0",
    ]


def test_there_are_no_colors_where_nobody_wants_them(
    terminal: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in terminal("check", "quickstart", "seed=x")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in terminal("check", "quickstart", "seed=x")


def test_elsewhere_the_same_words_are_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "quickstart", "training.lr=0.1"]) == 2
    said = capsys.readouterr().err
    assert said == "training.lr=0.1: unknown key 'lr'; did you mean 'training.optimizer.lr'?\n"


def test_what_a_user_wrote_cannot_add_lines() -> None:
    error = ConfigError("found 'a\nb'; did you mean 'c'?", "x=a\nb")
    assert error.lines() == ["error: found 'a\\nb'", "  --> x=a\\nb", "help: did you mean 'c'?"]
    assert describe_mistake(error) == "x=a\\nb: found 'a\\nb'; did you mean 'c'?"
