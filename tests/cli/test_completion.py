"""The scripts of `raysim completion`, in the shells that are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from raysim.shell_completion import SCRIPTS, write_script

COMPLETIONS = {
    "raysim r": {"run", "report", "reproduce"},
    "raysim reproduce spec": {"special"},
    "raysim run quicks": {"quickstart"},
    "raysim run --lo": {"--local"},
    "raysim run quickstart training.optimizer.l": {"training.optimizer.lr="},
    "raysim list memory": {"memory_policies"},
    "raysim completion z": {"zsh"},
    "raysim h": {"help"},
    "raysim help ch": {"check"},
}
BASH = """
complete_line() {
    COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _raysim 2>/dev/null
    printf '%s\\n' "${COMPREPLY[@]}"
}
complete_line "$1"
"""
ZSH = """
compdef() { }
_files() { }
_describe() { print -l ${(P)2%%:*} }
compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -l -- $@ }
"""


def has(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(shell) is None,
        reason=f"{shell} is not installed; that its script has every command is tested without it",
    )


def lines(*command: str) -> set[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return {line.split("\t")[0] for line in done.stdout.splitlines() if line}


@has("bash")
@pytest.mark.parametrize("line", COMPLETIONS)
def test_bash(line: str) -> None:
    assert lines("bash", "-c", write_script("bash") + BASH, "-", line) == COMPLETIONS[line]


@has("bash")
def test_a_value_of_an_option_is_no_config() -> None:
    for line in ("raysim run --out quicks", "raysim sweep quickstart --jobs training.opt"):
        assert lines("bash", "-c", write_script("bash") + BASH, "-", line) == set()
    assert lines("bash", "-c", write_script("bash") + BASH, "-", "raysim run --out x --local quicks") == {"quickstart"}


@has("bash")
def test_what_bash_adds_to_a_path_and_to_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is quoted, and a folder has a slash and no space after it; a key is followed by its value."""
    (tmp_path / "few runs").mkdir()
    monkeypatch.chdir(tmp_path)
    script = write_script("bash") + "compopt() { echo $*; }\n" + BASH
    for line, found in {
        "raysim live fe": {"few runs", "-o filenames"},
        "raysim run quicks": {"quickstart"},
        "raysim run quickstart training.optimizer.l": {"training.optimizer.lr=", "-o nospace"},
    }.items():
        assert lines("bash", "-c", script, "-", line) == found


@has("fish")
@pytest.mark.parametrize("line", COMPLETIONS)
def test_fish(line: str) -> None:
    assert lines("fish", "-N", "-c", f"{write_script('fish')}\ncomplete -C '{line}'") == COMPLETIONS[line]


@has("zsh")
@pytest.mark.parametrize("line", COMPLETIONS)
def test_zsh(line: str) -> None:
    """The words that are offered; zsh itself leaves out those that do not begin with what is typed."""
    words = line.split()
    asked = f"words=({' '.join(words)}) CURRENT={len(words)}; _raysim"
    found = lines("zsh", "-f", "-c", f"{ZSH}\n{write_script('zsh')}\n{asked}")
    assert {word for word in found if word.startswith(words[-1])} == COMPLETIONS[line]


@pytest.mark.parametrize("shell", SCRIPTS)
def test_every_script_knows_every_command(shell: str) -> None:
    from raysim.command_line import COMMANDS

    assert all(command in write_script(shell) for command in COMMANDS)
