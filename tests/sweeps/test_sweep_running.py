"""A sweep's way through its runs, in this process: failures and interrupts."""

import gc
import json
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from carrying import carried_out, standings, statuses

import raysim
from raysim.config import Config
from raysim.engine.events import Event, RoundDone
from raysim.engine.simulation import simulate_here
from raysim.estimate.memory import MemoryNeed
from raysim.sweeps import sweep
from raysim.sweeps.cells import Cell
from raysim.sweeps.directory import plan_sweep
from raysim.sweeps.sweep import carry_out
from raysim.sweeps.sweep_display import SweepDisplay
from raysim.system.capacity import Capacity
from raysim.system.errors import ConfigError, RunError

Grid = Callable[..., dict[str, Any]]

FAILING = {
    "what": {
        "diverges": {"training.optimizer.lr": 1e30},
        "mistake": {"methods": {"troubles:Broken": {}}},
        "no data": {"dataset": {"name": "npz", "path": "gone.npz", "root": "."}},
        "fine": {},
    }
}


def test_a_failure_is_recorded_and_the_others_go_on(grid: Grid, tmp_path: Path) -> None:
    outcomes = carried_out(grid(FAILING), tmp_path)
    assert statuses(outcomes) == ["failed"] * 3 + ["done"]
    diverges, mistake, no_data, _ = outcomes
    assert "client 0 diverged in round 1" in diverges.problem
    assert mistake.problem.startswith("KeyError: 'mine'")
    assert mistake.problem.endswith("; raysim run --local helps to debug it")
    assert "gone.npz" in no_data.problem
    assert [outcome.result and outcome.result.status for outcome in outcomes] == ["failed", "failed", None, "done"]
    assert raysim.load(tmp_path / "mistake").rounds == 2
    assert not (tmp_path / "no data").exists()
    assert standings(grid(FAILING), tmp_path) == {
        "diverges": "failed",
        "mistake": "failed",
        "no data": "new",
        "fine": "done",
    }


def test_a_run_frees_what_earlier_ones_held(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def simulate(config: Config, *parts: Any) -> Any:
        alive.append(sum(one() is not None for one in earlier))
        attempt = simulate_here(config, *parts)
        earlier.append(weakref.ref(attempt))
        return attempt

    monkeypatch.setattr(sweep, "simulate_here", simulate)
    gc.disable()  # it would free them now and then
    try:
        carried_out(grid({"seed": [0, 1, 2]}), tmp_path)
    finally:
        gc.enable()
    assert alive == [0, 0, 0]
    assert gc.get_freeze_count() == 0  # a program that called it collects its own objects again


def test_a_run_with_a_deleted_directory_fails_alone(grid: Grid, tmp_path: Path) -> None:
    class Deletes(SweepDisplay):
        def take(self, cell: Cell, event: Event) -> None:
            if isinstance(event, RoundDone) and (cell.folder, event.round) == ("seed-0", 1):
                shutil.rmtree(tmp_path / cell.folder)

    outcomes = carry_out(plan_sweep(grid({"seed": [0, 1, 2]}), (), tmp_path), True, None, Deletes())
    assert statuses(outcomes) == ["failed", "done", "done"]
    assert f"{tmp_path}/seed-0 was deleted or moved" in outcomes[0].problem


def test_a_warning_of_all_runs_is_said_once(grid: Grid, tmp_path: Path) -> None:
    """As in a run: LwF's hooks do not train several clients at a time."""
    told: list[str] = []

    class Says(SweepDisplay):
        def say(self, text: str) -> None:
            told.append(text)

    axes = {"seed": [0, 1], "methods": {"LwF": {"lwf": {}}, "FL": {}}}
    source = grid(axes, **{"training.vectorise": 2})
    assert statuses(carry_out(plan_sweep(source, (), tmp_path), True, None, Says())) == ["done"] * 4
    assert len([text for text in told if "vectorise" in text]) == 1


@pytest.mark.parametrize("jobs", [0, -1])
def test_no_runs_at_a_time_are_refused_from_python_too(grid: Grid, tmp_path: Path, jobs: int) -> None:
    with pytest.raises(ConfigError, match=rf"--jobs: found {jobs}, allowed: a whole number >= 1"):
        raysim.sweep(grid({"seed": [0]}), out=tmp_path / "out", jobs=jobs)
    assert not (tmp_path / "out").exists()


def test_from_python_a_warning_is_one_of_pythons(grid: Grid, tmp_path: Path) -> None:
    source = grid({"seed": [0, 1], "methods": {"LwF": {"lwf": {}}}}, **{"training.vectorise": 2})
    with pytest.warns(UserWarning, match=r"LwF/seed-0: training\.vectorise: .* lwf\.penalty") as warned:
        raysim.sweep(source, out=tmp_path, local=True)
    assert len(warned) == 1


def test_an_error_of_an_estimate_ends_no_other_run(grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The custom code of a model may fail in any of its passes, also in those before the first round."""
    estimate, seen = sweep.estimate_memory, []

    def first_fails(*given: Any) -> MemoryNeed:
        seen.append(given)
        if len(seen) == 1:
            raise ValueError("in the third pass")
        return estimate(*given)

    monkeypatch.setattr(sweep, "estimate_memory", first_fails)
    axes = {"model.hidden": [[5], [6]], "seed": [0, 1], "training.optimizer.lr": [0.1, 0.2]}
    outcomes = carried_out(grid(axes), tmp_path)
    assert statuses(outcomes) == ["failed"] + ["done"] * 7
    assert outcomes[0].problem.startswith("ValueError: in the third pass")
    assert len(seen) == 3  # one for each model, and the one that failed


def test_a_run_that_this_machine_cannot_hold_is_refused(
    grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 64 MiB a run may take 80%, and the libraries alone take more."""
    monkeypatch.setattr("raysim.sweeps.sweep.this_machine", lambda: Capacity(2, 0, 2**26))
    (refused,) = carried_out(grid({"seed": [0]}), tmp_path / "refused")
    assert refused.status == "failed"
    assert "clients.count: 2 in one process would take about " in refused.problem
    (warned,) = carried_out(grid({"seed": [0]}, **{"resources.memory": "warn"}), tmp_path / "warned")
    assert warned.status == "done"


def test_from_python_failures_are_one_error_after_all_runs(grid: Grid, tmp_path: Path) -> None:
    axes = {"training.optimizer.lr": [1e30, 0.1]}
    with pytest.raises(RunError, match=r"1 of 2 runs failed; the first was .*/lr-1\.0e\+30: client 0 diverged"):
        raysim.sweep(grid(axes), out=tmp_path, local=True)
    assert raysim.load(tmp_path / "lr-0.1").status == "done"


def test_the_first_interrupt_ends_the_round_and_starts_no_other_run(grid: Grid, tmp_path: Path) -> None:
    pressing = {"methods": {"troubles:Pressing": {"round": 2}}}
    source = grid({"what": {"presses": pressing, "no data": FAILING["what"]["no data"]}})
    # what is not started does not fail either
    assert statuses(carried_out(source, tmp_path)) == ["interrupted", "not started"]
    lines = (tmp_path / "presses/rounds.jsonl").read_text().splitlines()
    # the thread that asks for the end may come a round late
    assert 2 <= len(lines) == json.loads((tmp_path / "presses/summary.json").read_text())["rounds"] <= 3
    assert standings(source, tmp_path) == {"presses": "interrupted", "no data": "new"}


def test_an_interrupt_in_a_runs_last_round_stops_the_sweep_too(grid: Grid, tmp_path: Path) -> None:
    pressing = {"methods": {"own": {"troubles:Pressing": {"round": 4}}}, "seed": [0, 1]}
    assert statuses(carried_out(grid(pressing), tmp_path)) == ["done", "not started"]


def test_the_second_interrupt_leaves_at_once(grid: Grid, tmp_path: Path) -> None:
    pressing = {"methods": {"own": {"troubles:Pressing": {"round": 2, "times": 2}}}, "seed": [0, 1]}
    with pytest.raises(KeyboardInterrupt):
        carried_out(grid(pressing), tmp_path)
    result = raysim.load(tmp_path / "own/seed-0")
    assert (result.status, result.rounds) == ("interrupted", 1)
    assert not (tmp_path / "own/seed-1").exists()


def test_resources_that_are_not_there_are_refused_before_anything_is_written(grid: Grid, tmp_path: Path) -> None:
    nowhere = {"resources.address": "127.0.0.1:1"}
    cases = {
        "resources.gpus_per_actor: found 64, and this": grid({"seed": [0]}, **{"resources.gpus_per_actor": 64}),
        "resources.address: no cluster answers at 127.0.0.1:1": grid({"seed": [0]}, **nowhere),
        "resources.address: found one for some runs and another": grid({"on": {"a": {"seed": 1, **nowhere}, "b": {}}}),
    }
    for words, source in cases.items():
        with pytest.raises(ConfigError, match=words):
            carry_out(plan_sweep(source, (), tmp_path / "out"), False, None, SweepDisplay())
    assert not (tmp_path / "out").exists()
