"""Metrics of another direction and unit than accuracy's: by hand, and wherever they are shown."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import raysim
from raysim.cli import main
from raysim.evaluation.accuracy_matrix import metric_of, summarise
from raysim.objectives import Metric
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.reports.grouping import group_runs
from raysim.reports.quantity_tables import tabulate_results
from raysim.reports.reading import find_runs
from raysim.reports.write import write_report
from raysim.sweeps.directory import rate_trial

PERPLEXITY = Metric("perplexity", higher_is_better=False, range=(1.0, None))
REGRESSION = {
    "name": "tiny",
    "dataset": {"name": "friedman", "train": 36, "test": 20},
    "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"},
    "clients": {"count": 2},
    "model": {"name": "mlp", "hidden": [5]},
    "objective": "regression",
    "training": {"rounds_per_task": 1, "optimizer": {"lr": 0.002}},
}


def test_an_error_measure_that_has_become_worse_is_forgotten() -> None:
    """Three tasks, lower is better; a[t][i]:

    3 9 8    Forgetting: task 1 was best at 3 (row 1), ends at 6: 3; task 2 was best at 4, ends at 3: -1; mean 1.
    5 4 9    Since the task's end the same, as 3 and 4 are on the diagonal: 1; backward transfer -1.
    6 3 2    Forward: before their turn tasks 2 and 3 are at 9 and 9, untrained at 10 and 8: (10 - 9 + 8 - 9) / 2 = 0.
    The means over the tasks so far are 3, 4.5 and 11/3: 67/18.
    """
    found = summarise([[3.0, 9.0, 8.0], [5.0, 4.0, 9.0], [6.0, 3.0, 2.0]], [10.0, 10.0, 8.0], metric=PERPLEXITY)
    assert found == {
        "metric": "perplexity", "unit": "", "higher_is_better": False,
        "accuracy": [[3, 9, 8], [5, 4, 9], [6, 3, 2]], "average_accuracy": 11 / 3, "forgetting": 1.0,
        "final_forgetting": 1.0, "backward_transfer": -1.0, "forward_transfer": 0.0,
        "average_incremental_accuracy_by_task": pytest.approx(67 / 18),
    }  # fmt: skip
    assert metric_of(found) == Metric("perplexity", higher_is_better=False)


def test_accuracy_says_nothing_of_itself() -> None:
    found = summarise([[0.5]], [0.1])
    assert "metric" not in found
    assert metric_of(found) == ACCURACY_METRIC


def test_a_run_and_all_that_shows_it_say_the_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = raysim.run(REGRESSION, out=tmp_path / "run", local=True)
    written = json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"]["domain_il"]
    assert list(written)[:4] == ["metric", "unit", "higher_is_better", "accuracy"]
    assert (written["metric"], written["unit"], written["higher_is_better"]) == ("R2", "", True)
    assert raysim.load(tmp_path / "run").evaluation == result.evaluation
    board = EventAccumulator(str(tmp_path / "run")).Reload()
    assert {"average/domain_il/R2", "domain_il/task_2", "average/domain_il/forgetting"} <= {*board.Tags()["scalars"]}
    assert "domain_il/R2_matrix" in board.Tags()["images"]
    assert not [tag for kind in ("scalars", "images") for tag in board.Tags()[kind] if "accuracy" in tag]
    assert main(["run", "--local", "--resume", "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "R2, domain-IL: row t is after task t, column i is on task i" in shown
    last = written["accuracy"][1][1]
    assert f" {last:.3f} " in shown
    assert f"average R2 {written['average_accuracy']:.3f}, forgetting {written['forgetting']:.3f}" in shown
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("R2, domain-IL, test samples of each task")
    assert f"{last:.3f}  permutation 2 (20)" in shown
    report = write_report([tmp_path / "run"], tmp_path / "report")
    assert report.left_out == []


def made(directory: Path, mean: float, methods: dict[str, Any]) -> Path:
    matrix = [[2.0, 9.0], [mean, mean]]
    evaluation = {"domain_il": summarise(matrix, [10.0, 10.0], metric=PERPLEXITY)}
    return make_run(directory, {"methods": methods}, evaluation=evaluation)


def test_reports_and_tuning_follow_the_direction(tmp_path: Path) -> None:
    for number, (mean, methods) in enumerate(((4.0, {}), (3.0, {"er": {}}), (5.0, {"fedprox": {}}))):
        made(tmp_path / str(number), mean, methods)
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_results(setting, "domain_il")
    assert table.headings[2:5] == ("average perplexity", "forgetting", "backward transfer")
    assert [[cell.text for cell in row[:5]] for row in table.rows] == [
        ["FedAvg", "1", "4.000", "2.000", "-2.000"],
        ["ER", "1", "3.000", "1.000", "-1.000"],
        ["FedProx", "1", "5.000", "3.000", "-3.000"],
    ]
    assert [rate_trial(tmp_path / str(number), "done") for number in range(3)] == [-4.0, -3.0, -5.0]
    report = write_report([tmp_path], tmp_path / "report")
    captions = " ".join(plot.caption for plot in report.sections[0].plots)
    assert "Perplexity matrices" in captions
    assert "its final perplexity less the best one before the last task" in captions
    assert "accuracy" not in captions.lower()
    with (tmp_path / "report" / "means.csv").open() as file:
        assert [row["average perplexity"] for row in csv.DictReader(file)] == ["4.0", "3.0", "5.0"]
