"""`raysim sweep` as a user types it: what it prints, where, and with which exit status."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

import pytest
from rich.console import Console

import raysim
from raysim.cli import main
from raysim.sweeps.directory import plan_sweep
from raysim.sweeps.grid import expand_sweep
from raysim.sweeps.sweep_display import list_other_inputs, list_runs, open_sweep_display

Captured = pytest.CaptureFixture[str]
Write = Callable[..., Path]

SWEEPS = sorted((Path(__file__).parents[2] / "configs" / "sweeps").glob("*.yaml"))
GRID = """
grid:
  training.optimizer.lr: [0.1, 1.0e+30]
  methods: {FL: {}, FL + ER: {er: {}}}
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("RAYSIM_DATA", raising=False)


OWN = """
from raysim.api import ClientHalf, Method


class Prox(Method):
    class Client(ClientHalf):
        def gradient(self, step, gradient):
            return gradient * FACTOR
"""


def test_runs_of_code_that_has_changed_since_are_named(
    sweep_file: Write, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of FedAvg has none of it, and a run with the code as it is now is not named."""
    monkeypatch.syspath_prepend(tmp_path)
    own, path = tmp_path / "changing_prox.py", sweep_file("grid: {methods: {FL: {}, Prox: {'changing_prox:Prox': {}}}}")
    for factor, changed in ((0.5, False), (0.4, True)):
        own.write_text(OWN.replace("FACTOR", str(factor)))
        assert main(["sweep", str(path), "--local"]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if "other code" in line]
        words = "done with other code than now: runs/try/Prox; remove it and repeat the sweep to run it again"
        assert lines == ([words] if changed else [])


def test_runs_of_weights_that_have_changed_since_are_named(tmp_path: Path) -> None:
    """The digest is of the file `model.weights`. A run of an older version has none in its summary."""
    (tmp_path / "w.pt").write_bytes(b"then")
    model = SimpleNamespace(name="mlp", weights=str(tmp_path / "w.pt"), keys=dict)
    cell = SimpleNamespace(config=SimpleNamespace(model=model))
    digest = hashlib.sha256(b"then").hexdigest()
    outcomes: Any = [
        SimpleNamespace(directory=name, cell=cell, result=SimpleNamespace(versions=versions))
        for name, versions in (("a", {"weights": digest}), ("b", {}))
    ]
    assert list_other_inputs(outcomes) == []
    (tmp_path / "w.pt").write_bytes(b"now")
    again = "remove it and repeat the sweep to run it again"
    assert list_other_inputs(outcomes) == [f"done with other weights than now: a; {again}"]


def test_lines_tell_of_every_run_and_failures_once_more_at_the_end(sweep_file: Write, capsys: Captured) -> None:
    path = str(sweep_file(GRID))
    assert main(["sweep", path, "--local"]) == 1
    output, errors = capsys.readouterr()
    lines = output.splitlines()
    for number, (line, method) in enumerate(zip(lines, ("FL", "FL + ER"), strict=False), 1):
        pattern = (
            rf"run {number} of 4 done: runs/try/lr-0\.1/{re.escape(method)}: class-IL \d+\.\d%, task-IL \d+\.\d%, \d+ s"
        )
        assert re.fullmatch(pattern, line)
    assert [line.split(":")[:2] for line in lines[2:4]] == [
        ["run 3 of 4 failed", " runs/try/lr-1.0e+30/FL"],
        ["run 4 of 4 failed", " runs/try/lr-1.0e+30/FL + ER"],
    ]
    assert "diverged in round 1" in lines[2]
    assert lines[4:] == [
        "4 runs: 2 failed, 2 done",
        "sweep directory: runs/try",
        "report:          raysim report runs/try",
    ]
    assert errors.splitlines() == [line.partition(" of 4 ")[2] for line in lines[2:4]]

    assert main(["sweep", path, "--list"]) == 0
    listing = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    assert listing == [
        ["lr-0.1/FL", "done", "training.optimizer.lr=0.1", "methods={}"],
        ["lr-0.1/FL + ER", "done", "training.optimizer.lr=0.1", "methods={er: {}}"],
        ["lr-1.0e+30/FL", "failed", "training.optimizer.lr=1e+30", "methods={}"],
        ["lr-1.0e+30/FL + ER", "failed", "training.optimizer.lr=1e+30", "methods={er: {}}"],
    ]

    assert main(["sweep", path, "--local", "--quiet", "training.optimizer.lr=0.1"]) == 0
    assert tuple(capsys.readouterr()) == ("", "")
    assert main(["sweep", path, "--local", "training.optimizer.lr=0.1"]) == 0
    assert capsys.readouterr().out.startswith("2 runs: 2 done (2 before)\n")


def test_an_interrupt_has_its_own_exit_status(sweep_file: Write, capsys: Captured) -> None:
    path = str(sweep_file("grid: {seed: [0, 1]}\nset: {methods: {'troubles:Pressing': {}}}"))
    assert main(["sweep", path, "--local", "--out", "out"]) == 130
    output, errors = capsys.readouterr()
    assert "finishing this round, then stopping with a checkpoint; Ctrl-C again leaves at once, without one\n" in output
    assert "2 runs: 1 interrupted, 1 not started\n" in output
    assert errors == ""


WRONG = {
    "no config": ([], "required: CONFIG"),
    "no such file": (["gone.yaml"], "gone.yaml: there is no such file"),
    "a config": (["base.yaml"], "did you mean `raysim run base.yaml`?"),
    "no number": (["sweeps/sweep.yaml", "--jobs", "0"], "--jobs: found '0', allowed: a whole number >= 1"),
    "no word": (["sweeps/sweep.yaml", "--jobs", "two"], "--jobs: found 'two', allowed: a whole number >= 1"),
    "jobs of one": (["sweeps/sweep.yaml", "--jobs", "2", "--local"], "--jobs: found 2 with --local"),
    "a file as directory": (["sweeps/sweep.yaml", "--out", "base.yaml"], "base.yaml: this is a file"),
    "a wrong value": (["sweeps/sweep.yaml", "clients.count=0"], "clients.count=0: found 0, allowed: a whole number"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_in_one_line(case: str, sweep_file: Write, capsys: Captured) -> None:
    sweep_file("grid: {seed: [0, 1]}")
    argv, fragment = WRONG[case]
    assert main(["sweep", *argv]) == 2
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert fragment in errors
    assert not Path("runs").exists()


def test_the_table_on_a_terminal(sweep_file: Write, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def terminal(stream: TextIO) -> Console:
        return Console(file=stream, force_terminal=True, width=160, height=30)

    monkeypatch.setattr("raysim.sweeps.sweep_display.make_console", terminal)
    assert main(["sweep", str(sweep_file(GRID)), "--local"]) == 1
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().out)
    assert re.search(r"lr-0\.1/FL +done +\d+ s +class-IL \d+\.\d%, task-IL \d+\.\d%", shown)
    assert re.search(r"lr-1\.0e\+30/FL \+ ER +failed +\d+ s +client 0 diverged", shown)
    assert "4 runs: 2 failed, 2 done" in shown


def test_the_table_says_where_runs_are_and_leaves_out_what_has_no_room(
    sweep_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminal(stream: TextIO) -> Console:
        return Console(file=stream, force_terminal=True, width=160, height=9)

    def rows() -> list[tuple[str, ...]]:
        columns = [[str(cell) for cell in column.cells] for column in shown.table().columns]
        return list(zip(*columns, strict=True))

    monkeypatch.setattr("raysim.sweeps.sweep_display.make_console", terminal)
    path = sweep_file("grid: {seed: [0, 1, 2, 3]}")
    raysim.sweep(path, ["seed=0"], "out", local=True)
    plan = plan_sweep(path, (), "out")
    cells = [cell for cell, _ in plan.runs]
    from raysim.engine.events import RoundDone, Started

    with open_sweep_display(plan, quiet=False) as shown:
        first = rows()
        assert [row[:2] for row in first] == [("seed-0", "done"), ("seed-1", "waiting"), ("seed-2", "waiting")]
        assert first[0][3].startswith("class-IL ")
        shown.tell("starting Ray")
        assert str(shown.table().caption).startswith("starting Ray · 4 runs: 1 done, 3 waiting · 0:00:")
        shown.begin(cells[3])
        assert rows()[-1] == ("seed-3", "running", "starting", "")
        shown.take(cells[3], Started({}, 4))
        event = RoundDone(3, [2], [0], 0.5, 1, 1, 0.1, [0], 3.0, evaluation={"class_il": [0.5, 0.25]}, so_far=2)
        shown.take(cells[3], event)
        assert rows()[-1] == ("seed-3", "running", "task 2/2, round 3/4", "class-IL 37.5%")
        shown.begin(cells[2])
        assert [row[0] for row in rows()] == ["seed-0", "seed-2", "seed-3"]
        assert str(shown.table().caption).startswith("4 runs: 2 running, 1 done, 1 waiting · 0:00:")
        shown._began -= 60  # one run is three fourths done in a minute, of three that were left: 2.25 x 60 / 0.75
        assert str(shown.table().caption).endswith(" · 0:01:00 · left 0:03:00")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.soak) if path.stem.startswith("leaderboard") else path for path in SWEEPS],
    ids=lambda path: path.stem,
)
def test_the_sweeps_that_come_with_raysim_are_valid_without_their_data(path: Path) -> None:
    lines = list_runs(plan_sweep(path, (), None))
    said = re.search(r"(\d+) runs of ", path.read_text())
    assert said
    assert len(lines) == int(said[1])
    assert not Path("runs").exists()


def test_the_leaderboard_on_pixels_normalizes_the_inputs_of_every_run() -> None:
    """Four settings have twelve trials each, and the three finalists another one with larger inputs."""
    path = next(path for path in SWEEPS if path.stem == "leaderboard_pixels")
    _, cells = expand_sweep(path, ["methods=FedAvg", "seed=0"], lambda name, trial: 0.0)
    assert {cell.config.dataset.normalize for cell in cells} == {"standard"}
    scales = Counter(cell.config.dataset.input_scale for cell in cells if cell.trial)
    assert scales == {1.0: 4 * 12, 1.5: 4 * 3}
