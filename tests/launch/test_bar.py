"""The bar: what a line of a width shows, how long is left, and the same in a notebook."""

import io
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import raysim
from raysim.engine.events import RoundDone, Started, StartStep
from raysim.launch import bar as bars
from raysim.launch.bar import LiveRun, RunLines, open_run_display
from raysim.launch.display import RunDisplay


def shown(run: LiveRun) -> str:
    written = io.StringIO()
    Console(width=run.console.width, file=written, force_terminal=False).print(run.render())
    (line,) = written.getvalue().splitlines()
    return line.rstrip()


def done(round: int, accuracies: bool = True) -> RoundDone:
    evaluation = {"class_il": [0.5, 0.7, 0.0], "task_il": [0.9, 0.8, 0.5]} if accuracies else None
    return RoundDone(round, [2], [0], 0.1234, 1, 1, 0.1, [0], 1.0, evaluation=evaluation, so_far=2)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that sets the time."""
    now = SimpleNamespace(seconds=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: now.seconds)
    return lambda seconds: setattr(now, "seconds", 1000.0 + seconds)


@pytest.fixture
def running(tiny: Any, at: Any) -> Any:
    """A function that makes the bar of a run of 90 rounds of which 30 took a minute; 10 s of the next have passed."""

    def make(width: int) -> LiveRun:
        at(0)
        run = LiveRun(Console(width=width), tiny(scenario__tasks=3))
        at(20)
        run.take(Started(None, 90))
        for round in range(1, 30):
            run.take(done(round))
        at(80)
        run.take(done(30, accuracies=False))
        at(90)
        return run

    return make


def test_a_wide_line_has_everything(running: Any) -> None:
    """30 rounds in 60 s: 2 s each, 120 s for the 60 that are left, of which 10 have passed; 90 s since the start."""
    line = shown(running(120))
    assert line.startswith("task 2/3 ━━━")
    words = " round 30/90 loss 0.123  class-IL 60.0%, task-IL 85.0% 0:01:30 · left 0:01:50"
    assert line.endswith(words)
    bar = line.removeprefix("task 2/3 ").removesuffix(words)
    assert len(bar) <= 40
    assert set(bar) <= {"━", "╺", "╸", " "}  # without colours the rest of the bar is blank


@pytest.mark.parametrize(("width", "task"), [(80, "task 2/3 "), (72, "task 2/3 ")])
def test_rounds_accuracy_time_left_and_a_bar_fit_into_a_narrow_one(running: Any, width: int, task: str) -> None:
    line = shown(running(width))
    assert line.startswith(f"{task}━━")
    assert line.endswith(" round 30/90 class-IL 60.0%, task-IL 85.0% left 0:01:50")
    assert len(line) <= width


def test_the_narrowest_has_no_bar(running: Any) -> None:
    assert shown(running(60)) == "round 30/90 class-IL 60.0%, task-IL 85.0% left 0:01:50"


def test_the_stage_is_named_while_a_run_starts(tiny: Any, at: Any) -> None:
    at(0)
    run = LiveRun(Console(width=80), tiny())
    assert shown(run) == "⠋ starting 0:00:00"
    at(65)
    run.take(StartStep("hosts: 12 of 24 ready"))
    assert shown(run)[1:] == " hosts: 12 of 24 ready 0:01:05"
    assert run.describe() == "hosts: 12 of 24 ready, 0:01:05"
    run.take(StartStep("downloading mnist: 3 of 12 MB", share=0.25))
    assert shown(run).startswith("downloading mnist: 3 of 12 MB ━")
    run.take(Started(None, 8))
    assert shown(run).startswith("task 1/2  ")
    assert shown(run).endswith(" left -:--:--")


def test_a_log_has_a_line_about_a_long_silence(running: Any) -> None:
    words = "task 2/3, round 30 of 90, loss 0.123, class-IL 60.0%, task-IL 85.0%, 0:01:30, left 0:01:50"
    assert running(80).describe() == words


def test_a_line_of_a_log_ends_its_silence(tiny: Any, at: Any) -> None:
    """The last line was written after 20 s, so the next one is due after 50 s."""
    at(0)
    lines = RunLines(Console(file=io.StringIO()), tiny())
    at(20)
    lines.say("a line")
    at(49)
    assert not lines.silence.is_long()
    at(50)
    assert lines.silence.is_long()


def test_only_the_rounds_since_a_resume_tell_how_long_is_left(tiny: Any, at: Any) -> None:
    """Rounds 41 and 42 took 4 s each; 58 are left."""
    at(0)
    run = LiveRun(Console(width=80), tiny())
    run.take(Started(None, 100, 40))
    assert shown(run).startswith("resuming from round 40 ━")
    at(8)
    run.take(done(42))
    assert shown(run).endswith("left 0:03:52")


def test_a_run_names_its_stages(tiny: Any, tmp_path: Any) -> None:
    class Told(RunDisplay):
        def __init__(self) -> None:
            self.stages: list[str] = []

        def take(self, event: object) -> None:
            if isinstance(event, StartStep):
                self.stages.append(event.text)

    told = Told()
    raysim.run(tiny(logging={"tensorboard": False}), out=tmp_path / "run", local=True, display=told)
    assert told.stages == ["reading the data"]


def test_a_notebook_has_one_that_is_drawn_in_its_place(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    drawn: list[str] = []

    def display(picture: str, display_id: bool) -> SimpleNamespace:
        drawn.append(picture)
        return SimpleNamespace(update=drawn.append)

    module = ModuleType("IPython.display")
    vars(module).update(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(bars, "SECONDS", 0)
    monkeypatch.setattr(bars, "make_console", lambda stream: SimpleNamespace(is_jupyter=True))
    config = tiny(logging={"tensorboard": False}, evaluation={"every_rounds": 1})
    raysim.run(config, out=tmp_path / "run", local=True, progress=True)
    assert drawn[0].startswith("reading the data <progress max='1'></progress> 0:00:")
    assert drawn[-1].startswith("task 2/2 <progress value='1.0000' max='1'></progress> round 4/4 loss ")
    assert "left 0:00:00" in drawn[-1]


def test_progress_on_no_terminal_is_lines(tiny: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config = tiny(logging={"tensorboard": False})
    raysim.run(config, out=tmp_path / "run", local=True, progress=True)
    assert [line.split(",")[0].split(" ")[0] for line in capsys.readouterr().out.splitlines()] == [
        "tiny",
        "running",
        "task",
        "task",
    ]
    raysim.run(config, out=tmp_path / "quiet", local=True)
    assert capsys.readouterr().out == ""


def test_an_output_that_is_closed_ends_no_run(tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with open(tmp_path / "closed", "w") as closed:
        pass
    monkeypatch.setattr(sys, "stdout", closed)
    with open_run_display(tiny(), False) as display:
        display.say("nobody hears it")
