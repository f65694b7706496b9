"""Early stopping: by hand from the evaluations that it sees, and what could never stop is refused."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from small_configs import SMALL

import raysim
from raysim.callbacks import EarlyStopping, RunView
from raysim.cli import main
from raysim.engine.events import RoundDone
from raysim.launch.display import RunDisplay

CONFIG = SMALL | {
    "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"},
    "training": {"rounds_per_task": 6, "batch_size": 8, "optimizer": {"lr": 1e-9}},  # the model stays as it is
    "evaluation": {"every_rounds": 1},
    "checkpoint": {"every_rounds": 2},
}


def done(round: int, row: Sequence[float] | None, so_far: int = 1, loss: float | None = 0.5) -> RoundDone:
    evaluation = None if row is None else {"class_il": row, "task_il": [1 - value for value in row]}
    return RoundDone(
        round, [so_far], [0], loss, 1, 1, 0.1, [0], 1.0, records={"a.x": round}, evaluation=evaluation, so_far=so_far
    )


def rounds_until_stop(tiny: Any, rounds: Sequence[RoundDone], **keys: Any) -> tuple[int | None, str | None]:
    stopping, run = EarlyStopping(**keys), RunView("it", tiny(), Path())
    for one in rounds:
        stopping.on_round(run, one)
        if run.stopped is not None:
            return one.round, run.stopped
    return None, None


RISES_THEN_FALLS = [done(n, [value, 0.9]) for n, value in enumerate([0.5, 0.6, 0.6, 0.55, 0.61, 0.2, 0.2, 0.2], 1)]


def test_patience_counts_evaluations_that_are_no_better(tiny: Any) -> None:
    """Best is 0.6 in round 2; 3 and 4 are no better, 5 is (0.61); then 6, 7 and 8 are the third in a row."""
    words = "accuracy has not been better than 0.61 of round 5 for 3 evaluations"
    assert rounds_until_stop(tiny, RISES_THEN_FALLS, patience=3) == (8, words)
    assert rounds_until_stop(tiny, RISES_THEN_FALLS, patience=2)[0] == 4
    assert rounds_until_stop(tiny, RISES_THEN_FALLS, patience=4)[0] is None


def test_better_by_more_than_min_delta(tiny: Any) -> None:
    """0.61 is better than 0.6 by 0.01, which is not more than 0.02: rounds 3, 4, 5 are three in a row."""
    assert rounds_until_stop(tiny, RISES_THEN_FALLS, patience=3, min_delta=0.02)[0] == 5


def test_another_protocol_and_another_direction(tiny: Any) -> None:
    """task_il is 0.5, 0.4, 0.4, 0.45, 0.39, 0.8, ...: four in a row are no better than the first; 5 is the lowest."""
    assert rounds_until_stop(tiny, RISES_THEN_FALLS, patience=4, protocol="task_il")[0] == 5
    assert rounds_until_stop(tiny, RISES_THEN_FALLS, patience=3, protocol="task_il", mode="min")[0] == 8


def test_it_begins_anew_where_a_task_enters_the_mean(tiny: Any) -> None:
    """The mean falls from 0.8 to (0.8 + 0) / 2; round 3 is the first of the new quantity, 4 and 5 are no better."""
    rounds = [done(1, [0.8, 0.0]), done(2, [0.8, 0.0]), *(done(n, [0.8, 0.0], so_far=2) for n in (3, 4, 5))]
    assert rounds_until_stop(tiny, rounds, patience=2)[0] == 5


def test_rounds_without_an_evaluation_or_a_loss_do_not_count(tiny: Any) -> None:
    rounds = [done(1, [0.5]), *(done(n, None, loss=None) for n in range(2, 9)), done(9, [0.5])]
    assert rounds_until_stop(tiny, rounds, patience=1)[0] == 9
    assert rounds_until_stop(tiny, rounds, patience=1, metric="loss")[0] == 9


def test_a_loss_and_what_a_method_records(tiny: Any) -> None:
    falling = [done(n, None, loss=value) for n, value in enumerate([3.0, 2.0, 2.5, 2.1], 1)]
    words = "loss has not been better than 2 of round 2 for 2 rounds"
    assert rounds_until_stop(tiny, falling, patience=2, metric="loss") == (4, words)
    assert rounds_until_stop(tiny, falling, patience=3, metric="a.x", mode="min")[0] == 4
    assert rounds_until_stop(tiny, falling, patience=1, metric="a.x", mode="max")[0] is None
    assert rounds_until_stop(tiny, falling, patience=1, metric="gone", mode="max")[0] is None


def test_a_run_ends_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rate is so small that no prediction changes: round 1 is the best, 2 to 4 are the three that end it."""
    path = tmp_path / "small.yaml"
    path.write_text(json.dumps(CONFIG))
    asked = ["callbacks.early_stopping.patience=3", "--local", "--out", str(tmp_path / "run")]
    assert main(["run", str(path), *asked]) == 0
    output = capsys.readouterr().out
    assert "early_stopping ends the run after round 4: accuracy has not been better than " in output
    assert "\ndone, stopped by early_stopping: 4 rounds in " in output
    result = raysim.load(tmp_path / "run")
    assert (result.status, result.stopped_by, result.rounds) == ("done", "early_stopping", 4)
    (row,) = result.evaluation["domain_il"]["accuracy"]
    assert main(["report", str(tmp_path / "run")]) == 2
    assert "no matrix of 2 x 2 tasks, as early_stopping stopped the run before the last task" in capsys.readouterr().err
    assert len(row) == 2


def test_an_object_that_is_given_to_two_runs_begins_anew(tmp_path: Path) -> None:
    """Both runs are equal: round 1 is the best, and 2 to 4 are the three that end it."""
    stopping = EarlyStopping(patience=3)
    runs = [raysim.run(CONFIG, out=tmp_path / name, local=True, callbacks=[stopping]) for name in ("one", "other")]
    assert [run.rounds for run in runs] == [4, 4]


class Leave(RunDisplay):
    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == 3:
            raise KeyboardInterrupt


def test_a_resumed_run_ends_where_an_undisturbed_one_does(tmp_path: Path) -> None:
    """Left after round 3, resumed from the checkpoint of 2, whose one evaluation without a gain counts."""
    stopping = {"callbacks": {"early_stopping": {"patience": 3}}}
    with pytest.raises(KeyboardInterrupt):
        raysim.run(CONFIG, stopping, tmp_path / "run", True, display=Leave())
    result = raysim.run(None, out=tmp_path / "run", local=True, resume=True)
    assert (result.rounds, result.stopped_by) == (4, "early_stopping")


def test_a_run_that_was_killed_after_its_last_round_trains_no_further(tmp_path: Path) -> None:
    stopping = {"callbacks": {"early_stopping": {"patience": 3}}}
    whole = raysim.run(CONFIG, stopping, tmp_path / "run", True)
    for name in ("summary.json", "model.pt"):
        (tmp_path / "run" / name).unlink()
    result = raysim.run(None, out=tmp_path / "run", local=True, resume=True)
    assert (result.rounds, result.stopped_by, result.evaluation) == (4, "early_stopping", whole.evaluation)
    assert result.model_sha256 == whole.model_sha256


REFUSED = {
    "another protocol": (
        {"early_stopping.protocol": "class_il"},
        "callbacks.early_stopping: protocol: found 'class_il', allowed: domain_il, as the tasks are",
    ),
    "one evaluation a task": (
        {"evaluation": {}},
        "metric: found an evaluation per task, allowed: evaluation.every_rounds",
    ),
    "an unknown direction": ({"early_stopping.metric": "mine"}, "mode: found auto for 'mine', allowed: max or min"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_never_stop_is_refused(case: str, tmp_path: Path) -> None:
    given, words = REFUSED[case]
    keys = {key if "." not in key else f"callbacks.{key}": value for key, value in given.items()}
    for start in (lambda c: raysim.run(c, keys, tmp_path / "run", True), lambda c: raysim.check(c, keys)):
        with pytest.raises(raysim.ConfigError) as found:
            start({**CONFIG, "callbacks": {"early_stopping": {}}})
        assert words in str(found.value)
    assert not (tmp_path / "run").exists()
