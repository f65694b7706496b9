"""The help and the lists: as wide as the terminal, in groups, with colors only on a terminal."""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from raysim.cli import ACTIONS, main
from raysim.command_line import COMMANDS
from raysim.config.lookup import KINDS
from raysim.config.reference import find_components

ROOT = Path(__file__).parents[2]
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def terminal(on_a_terminal: Callable[..., str]) -> Callable[..., str]:
    """A function that returns what a command writes to standard output where that is a terminal."""
    return partial(on_a_terminal, "stdout", 0)


def test_every_command_has_arguments_and_an_action() -> None:
    assert COMMANDS.keys() == ACTIONS.keys()


def test_every_option_in_the_documentation_is_there() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    lines = (line for page in pages for line in re.findall(r"raysim [a-z]+ [^`\n]*", page.read_text()))
    asked = {(line.split()[1], option) for line in lines for option in re.findall(r"(?<=\s)--[a-z]+", line)}
    asked = {(command, option) for command, option in asked if command in COMMANDS}
    assert ("check", "--cluster") in asked
    known = {(name, option) for name in COMMANDS for option in COMMANDS[name].parser(name)._option_string_actions}
    assert asked <= known


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_of_the_help_is_wider_than_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for argv in ([], *([command, "--help"] for command in COMMANDS)):
        assert main(argv) == 0
        shown = capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= width
        assert "...." not in shown
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    groups = [line for line in lines if line in ("Run", "Look", "Start")]
    assert groups == ["Run", "Look", "Start"]
    assert [line.split()[0] for line in lines if line.startswith("  ") and line.split()[0] in COMMANDS] == [*COMMANDS]


def test_the_help_has_colors_only_on_a_terminal(terminal: Callable[..., str], capsys: Captured) -> None:
    assert main(["--help"]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert "\x1b[1mRun\x1b[0m\n  \x1b[36mrun\x1b[0m   " in terminal("--help")
    assert "\x1b[1moptions:\x1b[0m\n  \x1b[36m-h, --help\x1b[0m" in terminal("run", "--help")


def test_a_list_is_wrapped_on_a_terminal_and_a_line_each_elsewhere(
    terminal: Callable[..., str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["list", "methods"]) == 0
    elsewhere = capsys.readouterr().out.splitlines()
    lines = terminal("list", "methods").splitlines()
    assert max(map(len, lines)) <= 60 < max(map(len, elsewhere))
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(elsewhere).split())
    assert all(line.startswith(" " * 19) for line in lines if line.split()[0] not in [x.split()[0] for x in elsewhere])


def test_list_alone_says_which_kinds_there_are(capsys: Captured) -> None:
    assert main(["list"]) == 0
    *kinds, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in kinds] == [kind.listed for kind in KINDS.values() if kind.listed]
    assert all(len(line.split()) > 2 for line in kinds)
    assert last == "`raysim list KIND` lists the names, `raysim list KIND NAME` a name's keys."
    assert all(one["description"] for one in find_components(None))


def test_a_dataset_is_listed_with_what_it_is_its_size_and_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    found = {}
    for name in ("mnist", "svhn", "csv", "digits"):
        assert main(["list", "datasets", name]) == 0
        found[name] = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    another = "; dataset.root or RAYSIM_DATA is another folder"
    about = "mnist MNIST handwritten digits 28 x 28, 10 classes, 60000 + 10000 images (LeCun et al. 1998)."
    files = f"files {tmp_path}/MNIST/raw/, about 12 MB to download{another}"
    assert found["mnist"] == [about, "keys none of its own", files]
    places = f"{tmp_path}/train_32x32.mat, {tmp_path}/test_32x32.mat"
    assert found["svhn"][-1] == f"files {places}, about 246 MB to download{another}"
    assert found["csv"][-1] == f"files yours; a relative path starts at {tmp_path}{another}"
    assert found["digits"][1:] == ["keys none of its own"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv", [[], ["list"], ["list", "--json"], ["completion", "bash"], ["rnu"], ["run", "--help"], ["help"]]
)
def test_torch_is_not_imported_for_help(argv: list[str]) -> None:
    code = f"import sys; from raysim.cli import main; main({argv}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0
