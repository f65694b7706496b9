"""Every command of the README and of docs/ works: it is taken as it stands, and a small version of it runs.

Of commands with the same config, the first one runs, and of the others the config with their keys is checked.
"""

import re
import shlex
from itertools import count
from pathlib import Path

import pytest
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from pages import GUIDES, ROOT, blocks, commands, names
from small import small

import raysim
from raysim.cli import main
from raysim.config import load
from raysim.engine.compatibility import check_methods
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay
from raysim.sweeps.directory import plan_sweep

COMMANDS = sorted({shlex.join(words) for page in GUIDES for words in commands(page)})
OTHERS = {"make", "source", "tensorboard", "pip", "python", "ray", "ssh", "export", "cd", "kubectl", "docker", "sbatch"}
OTHERS |= {"apptainer", "sudo", "grep", "pkill", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"}
LONG = {  # a report or a list of thousands of runs; other tests read and list them
    "raysim report results/leaderboard_pixels",
    "raysim sweep configs/sweeps/leaderboard_pixels.yaml",
    "raysim sweep configs/sweeps/leaderboard_features.yaml",
}
OURS = [
    command
    for command in COMMANDS
    if command.startswith("raysim ") and command not in LONG and "--cluster" not in command
]
FIRST: dict[tuple[str, ...], str] = {}
for _command in OURS:
    FIRST.setdefault((*shlex.split(_command)[1:3],), _command)
pytestmark = pytest.mark.soak


@pytest.mark.parametrize("command", OURS)
def test_it_runs(command: str, workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = shlex.split(command)[1:]
    if asked[0] in ("run", "check") and "--resume" not in asked and FIRST[(*asked[:2],)] != command:
        check_methods(load(asked[1], _overrides(asked)))
        return
    status = TRIED[asked[0]](asked, tmp_path)
    written = capsys.readouterr()
    assert status == 0, written.err


def _run(asked: list[str], out: Path) -> int:
    """Check the config as it stands, then run it small, in this process."""
    if "--resume" in asked:
        return _resume(asked)
    config = load(asked[1], _overrides(asked))
    check_methods(config)
    own = [word for word in asked if word not in ("--local", _value_of(asked, "--out"), "--out")]
    return main([*own, *small(config), "--local", "--quiet", "--out", str(out)])


class Lost(Exception):
    """What happened to a run."""


class Losing(RunDisplay):
    """Loses the run after its first round."""

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone):
            raise Lost


def _resume(asked: list[str]) -> int:
    """Go on with a small run of the quickstart that was lost."""
    config, directory = load("configs/quickstart.yaml", ["checkpoint.every_rounds=1"]), _value_of(asked, "--out")
    assert directory is not None
    with pytest.raises(Lost):
        raysim.run(load(config, small(config)), out=directory, local=True, display=Losing())
    status = main([*asked, "--local", "--quiet"])
    ended = raysim.load(directory)
    assert (ended.status, ended.rounds) == ("done", 3)
    return status


def _check(asked: list[str], out: Path) -> int:
    return main([*asked, *small(load(asked[1], _overrides(asked)))])


def _sweep(asked: list[str], out: Path) -> int:
    """List it, which checks every run; then run its first and its last one small."""
    runs = plan_sweep(asked[1], _overrides(asked), out).runs
    for number in (0, -1):
        config = runs[number][0].config
        result = raysim.run(config, small(config), out=out / str(number), local=True)
        assert result.status == "done"
    return main([*(word for word in asked if word not in ("--local", "--list")), "--list"])


def _reproduce(asked: list[str], out: Path) -> int:
    """List the rows that it names, without their hours. That rows run has a test of its own."""
    return main([*asked, "--list", "--quick"])


def _as_it_stands(asked: list[str], out: Path) -> int:
    return main(asked)


def _report(asked: list[str], out: Path) -> int:
    """Write all of it, the pictures empty: they take seconds to draw, and have tests of their own."""
    number = count()  # as a picture that equals another one is left out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FigureCanvasSVG, "print_svg", lambda _, to, **how: to.write(f'<svg id="{next(number)}"/>'))
        patch.setattr(FigureCanvasPdf, "print_pdf", lambda _, to, **how: to.write(b"%PDF"))
        return main(asked)


TRIED = {
    "run": _run,
    "check": _check,
    "sweep": _sweep,
    "reproduce": _reproduce,
    "list": _as_it_stands,
    "report": _report,
    "evaluate": _as_it_stands,
    "show": _as_it_stands,
    "configs": _as_it_stands,
    "new": _as_it_stands,
    "completion": _as_it_stands,
}


def _overrides(asked: list[str]) -> list[str]:
    out = _value_of(asked, "--out")
    return [word for word in asked[2:] if not word.startswith("--") and word != out]


def _value_of(asked: list[str], option: str) -> str | None:
    return asked[asked.index(option) + 1] if option in asked else None


@pytest.mark.parametrize("command", [command for command in COMMANDS if not command.startswith("raysim ")])
def test_the_other_commands_are_there(command: str) -> None:
    program, *words = shlex.split(command)
    assert program in OTHERS
    if program == "make":
        assert re.search(f"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if program == "python" and words[0].endswith(".py"):
        assert (ROOT / words[0]).is_file()


RUNNING = [(names(page), block) for page in GUIDES for block in blocks(page, "python") if "raysim.run(" in block]


@pytest.mark.parametrize(("page", "block"), RUNNING, ids=[page for page, _ in RUNNING])
def test_code_that_runs_something_runs(
    page: str, block: str, workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = raysim.run

    def quick(
        config: object, overrides: object = (), out: object = None, local: bool = False, **more: object
    ) -> raysim.Result:
        asked = load(config, overrides)
        return whole(load(asked, small(asked)), out=out or tmp_path / "run", local=True, **more)

    monkeypatch.setattr(raysim, "run", quick)
    space: dict[str, object] = {}
    exec(compile(block, page, "exec"), space)
    for name, test in space.items():
        if name.startswith("test_"):
            test(tmp_path)


def test_what_documents_say_of_a_data_set_of_ones_own_works(workplace: Path, tmp_path: Path) -> None:
    (block,) = (block for block in blocks(ROOT / "docs" / "scenarios.md", "python") if "def stripes" in block)
    Path("stripes_of_mine.py").write_text(block)
    config = {
        "name": "mine",
        "dataset": {"name": "stripes_of_mine:stripes", "width": 1},
        "scenario": {"kind": "domain_incremental", "tasks": 2},
        "clients": {"count": 2},
        "model": {"name": "mlp", "hidden": [4]},
        "training": {"rounds_per_task": 1},
        "logging": {"tensorboard": False},
    }
    assert raysim.run(config, out=tmp_path / "run", local=True).status == "done"
