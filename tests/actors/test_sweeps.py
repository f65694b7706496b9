"""A sweep on Ray: whole runs in processes of their own, recorded by the driver; their bits are those of local runs."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

import raysim
from raysim.engine.events import Event, RoundDone
from raysim.sweeps.cells import Cell
from raysim.sweeps.directory import RunOutcome, SweepPlan, plan_sweep
from raysim.sweeps.sweep import carry_out
from raysim.sweeps.sweep_display import SweepDisplay

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

Facts = Callable[[raysim.Result], Mapping[str, Any]]


def misbehaving(what: str) -> dict[str, Any]:
    return {"methods": {"misbehaving:Misbehaving": {"what": what}}}


class Watching(SweepDisplay):
    """Notes how many runs are under way, and presses Ctrl-C when a round is done, so many times."""

    def __init__(self, presses: int = 0) -> None:
        self.under_way: set[str] = set()
        self.most = 0
        self.processes = 0
        self.said: list[str] = []
        self._presses = presses

    def begin(self, cell: Cell) -> None:
        self.under_way.add(cell.folder)
        self.most = max(self.most, len(self.under_way))

    def take(self, cell: Cell, event: Event) -> None:
        if isinstance(event, RoundDone):
            self.processes = max(self.processes, len(processes()))
        while self._presses and isinstance(event, RoundDone):
            self._presses -= 1
            os.kill(os.getpid(), signal.SIGINT)

    def end(self, outcome: RunOutcome) -> None:
        self.under_way.discard(outcome.cell.folder)

    def say(self, text: str) -> None:
        self.said.append(text)


def processes() -> list[psutil.Process]:
    """The processes of runs that are alive."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "RunProcess" in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:  # it has ended
            continue
    return found


def plan_of(small: dict[str, Any], axes: dict[str, Any], out: Path, **shared: object) -> SweepPlan:
    shared = {"logging.tensorboard": False, **shared}
    return plan_sweep({"name": "small", "base": small, "set": shared, "grid": axes}, (), out)


def test_runs_have_the_bits_of_local_runs_and_failures_stay_their_own(
    small: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    axes = {
        "what": {
            "die": {**misbehaving("die"), "checkpoint.tries": 1},
            "raise": misbehaving("raise"),
            "no data": {"dataset": {"name": "npz", "path": "gone.npz", "root": "."}},
            "dropout": {"model.dropout": 0.5, "methods": {"fed_a_gem": {}}, "participation": {"count": 3}},
            "plain": {},
        }
    }
    plan, shown = plan_of(small, axes, tmp_path / "out"), Watching()
    outcomes = carry_out(plan, False, 2, shown)
    assert (shown.most, shown.under_way) == (2, set())
    assert shown.processes >= 1  # what must be gone is found
    assert [outcome.status for outcome in outcomes] == ["failed"] * 3 + ["done"] * 2
    dead, raised, no_data, *done = outcomes
    assert dead.problem.startswith("the run's process died 2 times in round 3: its process ended")
    assert dead.problem.endswith("; with fewer runs at a time (--jobs) each has more memory")
    assert raised.problem.startswith("KeyError: 'a mistake of my own'")
    assert "gone.npz" in no_data.problem
    for outcome in (dead, raised):
        result = raysim.load(outcome.directory)
        assert (result.status, result.rounds) == ("failed", 2)
        assert result.peak_memory_bytes > 2**26
    for outcome in done:
        assert outcome.result
        here = raysim.run(outcome.cell.config, out=tmp_path / outcome.cell.folder, local=True)
        assert facts(outcome.result) == facts(here)
        assert outcome.result.seconds > outcome.result.seconds_starting > 0
        assert outcome.result.peak_memory_bytes > 2**26
    assert psutil.wait_procs(processes(), timeout=30)[1] == []


@pytest.mark.parametrize("presses", [1, 2])
def test_an_interrupt_lets_rounds_end_and_the_second_leaves_at_once(
    presses: int, small: dict[str, Any], tmp_path: Path
) -> None:
    def plan() -> SweepPlan:
        return plan_of(small, {"seed": [0, 1, 2]}, tmp_path, **{"training.rounds_per_task": 100_000})

    shown = Watching(presses)
    if presses == 1:
        outcomes = carry_out(plan(), False, 2, shown)
        assert [outcome.status for outcome in outcomes] == ["interrupted"] * 2 + ["not started"]
        assert (tmp_path / "seed-0" / "model.pt").is_file()
    else:
        with pytest.raises(KeyboardInterrupt):
            carry_out(plan(), False, 2, shown)
    assert shown.said == [
        "finishing this round, then stopping with a checkpoint; Ctrl-C again leaves at once, without one"
    ]
    assert [progress for _, progress in plan().runs] == ["interrupted", "interrupted", "new"]
    assert shown.processes >= 1  # what must be gone is found
    assert psutil.wait_procs(processes(), timeout=30)[1] == []


class Killing(Watching):
    """Kills the process of the one run that is under way, after a round."""

    killed = 0

    def take(self, cell: Cell, event: Event) -> None:
        if isinstance(event, RoundDone) and event.round == 4 and not self.killed:
            (process,) = processes()
            process.kill()
            self.killed += 1


def test_a_run_whose_process_is_killed_resumes_from_its_checkpoint(
    small: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    """Killed after round 4 of 6; its newest checkpoint is then of round 3, which the run waits for."""
    slow = {"methods": {"misbehaving:Slow": {"seconds": 0.3}}, "checkpoint.every_rounds": 3}
    shown = Killing()
    (outcome,) = carry_out(plan_of(small, {"seed": [0]}, tmp_path / "out", **slow), False, 1, shown)
    assert (shown.killed, outcome.status) == (1, "done")
    assert outcome.result
    assert outcome.result.recoveries == 1
    assert 1 <= outcome.result.rounds_recomputed <= 3
    (line,) = shown.said
    assert line.startswith("seed-0: the run's process died: its process ended")
    assert line.endswith("; resuming from round 3")
    here = raysim.run(outcome.cell.config, out=tmp_path / "here", local=True)
    assert facts(outcome.result) == facts(here)
    assert psutil.wait_procs(processes(), timeout=30)[1] == []
