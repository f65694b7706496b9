"""A tuned sweep that is repeated after something has changed: its lists, its files, or what hindered a trial."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from carrying import BASE, carried_out, standings, statuses, tuned

import raysim
from raysim.cli import main
from raysim.sweeps.directory import RunOutcome, plan_sweep, rate_trial, read_labels
from raysim.sweeps.sweep import carry_out
from raysim.sweeps.sweep_display import SweepDisplay, summarise_outcomes
from raysim.system.errors import ConfigError

Write = Callable[..., Path]

SMALL, LARGE = 1e-9, 0.3  # learning rates: nothing is learned with the small one
OF_SMALL, OF_LARGE = "validation/Rate, lr=1.0e-09/seed-3", "validation/Rate, lr=0.3/seed-3"
ONLY = ("methods=Rate", "seed=3")


def rates(*values: float, **more: object) -> dict[str, Any]:
    return tuned({"Rate": {"training.optimizer.lr": [*values]}}, **more)


def hindered(**arguments: object) -> dict[str, Any]:
    """A sweep of both rates, in which the trials with the large one are hindered."""
    callback = {"troubles:Hindering": {"rate": LARGE, **arguments}}
    return rates(SMALL, LARGE, set={"callbacks": callback})


def written(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}


def test_a_sweep_of_one_run_says_so(tmp_path: Path) -> None:
    plan = plan_sweep({"name": "one", "base": BASE, "grid": {"seed": [3]}}, [], tmp_path)
    outcomes = [*plan.outcomes().values()]
    assert summarise_outcomes(outcomes, plan) == "1 run: 1 not started"


def test_a_longer_list_with_another_best_value_fails_only_the_runs_with_the_earlier_one(tmp_path: Path) -> None:
    carried_out(rates(SMALL, 1e-10), tmp_path, *ONLY)
    assert read_labels(tmp_path).chosen == {"Rate/seed-3": "lr=1.0e-09"}
    longer = rates(SMALL, 1e-10, LARGE)
    longer["tune"]["methods"]["Sizes"] = {"training.batch_size": [4, 2]}
    for _ in range(2):  # when the new trial has ended, and with all trials done before
        ended = {outcome.cell.folder: outcome for outcome in carried_out(longer, tmp_path)}
        assert [folder for folder, outcome in ended.items() if outcome.status != "done"] == ["Rate/seed-3"]
        assert ended["Rate/seed-3"].problem == (
            "trials have chosen lr=0.3, and a run with other values is there: training.optimizer.lr: 1e-09 there, 0.3 "
            "here; remove this directory and repeat the sweep"
        )
        assert {"Rate/seed-4", "Sizes/seed-3", "Sizes/seed-4", "ER/seed-4"} < ended.keys()
        chosen = read_labels(tmp_path).chosen
        assert (chosen["Rate/seed-3"], chosen["Rate/seed-4"]) == ("lr=1.0e-09", "lr=0.3")  # as in their directories
    assert standings(longer, tmp_path)["Rate/seed-3"] == "outdated"
    shutil.rmtree(tmp_path / "Rate/seed-3")
    assert set(statuses(carried_out(longer, tmp_path))) == {"done"}
    assert read_labels(tmp_path).chosen["Rate/seed-3"] == "lr=0.3"


def test_what_is_in_the_way_of_an_undecided_run_is_refused_before_its_trials(tmp_path: Path) -> None:
    (tmp_path / "Rate/seed-3").mkdir(parents=True)
    (tmp_path / "Rate/seed-3/notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"found notes\.txt and no config\.yaml, so this is no run's"):
        carried_out(rates(SMALL, LARGE), tmp_path, *ONLY)
    assert not (tmp_path / "validation").exists()


def test_a_trial_that_failed_in_an_earlier_sweep_is_repeated_before_the_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, out = hindered(how="full"), tmp_path / "out"
    Path("full").touch()
    ended = carried_out(source, out, *ONLY)
    assert statuses(ended) == ["done", "failed", "done"]
    assert ended[-1].cell.chosen == "lr=1.0e-09"
    shutil.rmtree(out / "Rate")
    Path("full").unlink()
    assert standings(source, out, *ONLY) == {OF_SMALL: "done", OF_LARGE: "failed", "Rate/seed-3": "undecided"}
    assert carried_out(source, out, *ONLY)[-1].cell.chosen == "lr=0.3"


@pytest.mark.parametrize(("at", "every", "rows"), [(1, None, 0), (2, None, 1), (3, None, 1), (3, 1, 2)])
def test_a_trial_is_out_if_it_was_stopped_with_fewer_rows_than_tasks(
    at: int, every: int | None, rows: int, tmp_path: Path
) -> None:
    """Task 2 begins in round 3. A row is written in round 2, or if each round is evaluated, in that of the stop."""
    source = hindered(how="stop", at=at)
    source["set"]["evaluation.every_rounds"] = every
    source["base"] = {**BASE, "scenario": {"kind": "class_incremental", "tasks": 2}}
    chosen = carried_out(source, tmp_path, *ONLY)[-1].cell.chosen
    small, large = (
        json.loads((tmp_path / trial / "summary.json").read_text())["evaluation"]["class_il"]
        for trial in (OF_SMALL, OF_LARGE)
    )
    assert len(large["accuracy"]) == rows
    assert rate_trial(tmp_path / OF_SMALL, "done") == small["average_accuracy"]
    rating = large["average_accuracy"] if rows == 2 else -math.inf
    assert rate_trial(tmp_path / OF_LARGE, "done") == rating
    assert chosen == ("lr=0.3" if rating > small["average_accuracy"] else "lr=1.0e-09")


def test_a_file_that_is_edited_while_the_sweep_is_in_progress_changes_nothing(
    sweep_file: Write, tmp_path: Path
) -> None:
    path = sweep_file("grid: {seed: [3]}\ntune: {methods: {Rate: {training.optimizer.lr: [1.0e-9, 0.3]}}}")

    class Edits(SweepDisplay):
        def end(self, outcome: RunOutcome) -> None:
            path.write_text(path.read_text().replace("[3]", "[5]"))
            (tmp_path / "base.yaml").write_text("name: another\n")

    ended = carry_out(plan_sweep(path, (), tmp_path / "out"), True, None, Edits())
    assert [(outcome.cell.folder, outcome.status) for outcome in ended] == [
        (OF_SMALL, "done"),
        (OF_LARGE, "done"),
        ("Rate/seed-3", "done"),
    ]
    assert "[5]" in path.read_text()


def test_a_diverged_candidate_is_dropped_and_its_trial_is_not_repeated(
    sweep_file: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sweep_file("grid: {seed: [3]}\ntune: {methods: {Rate: {training.optimizer.lr: [1.0e+30, 0.3]}}}")
    out = tmp_path / "out"
    diverged = "validation/Rate, lr=1.0e+30/seed-3"
    for _ in range(2):
        results = raysim.sweep(path, out=out, local=True)
        assert [(str(result.directory.relative_to(out)), result.status) for result in results] == [
            (diverged, "failed"),
            (OF_LARGE, "done"),
            ("Rate/seed-3", "done"),
        ]
        before = written(out)
    assert main(["sweep", str(path), "--local", "--out", str(out)]) == 0
    output, errors = capsys.readouterr()
    assert "3 runs: 1 diverged, 2 done (2 before)\n" in output
    assert errors == ""
    assert written(out) == before
    shutil.rmtree(out / diverged)
    raysim.sweep(path, out=out, local=True)
    assert [file for file, when in written(out).items() if before[file] != when] == [out / diverged / "summary.json"]


def test_a_run_that_diverges_has_failed_if_it_is_no_trial(tmp_path: Path) -> None:
    """Even if its axis is that in which trials differ from runs."""
    grid = {"evaluation.split": ["validation", "test"], "training.optimizer.lr": [1e30]}
    ended = carried_out({"name": "try", "base": BASE, "grid": grid}, tmp_path)
    assert statuses(ended) == ["failed", "failed"]


def test_a_sweep_planned_before_another_one_ended_repeats_none_of_its_runs(tmp_path: Path) -> None:
    source = {"name": "try", "base": BASE, "grid": {"seed": [0, 1]}}
    plan = plan_sweep(source, (), tmp_path)
    carried_out(source, tmp_path)
    before = written(tmp_path)
    assert statuses(carry_out(plan, True, None, SweepDisplay())) == ["done", "done"]
    assert written(tmp_path) == before


def test_runs_wait_for_a_trial_that_a_stop_file_has_interrupted(tmp_path: Path) -> None:
    ended = carried_out(hindered(how="file"), tmp_path, *ONLY)
    assert statuses(ended) == ["done", "interrupted", "not started"]
    assert ended[-1].problem == "waits for its trials"
