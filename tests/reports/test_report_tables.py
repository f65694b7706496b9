"""The numbers of the tables, derived by hand from matrices of two tasks.

With rows (a, b) and (c, d): average accuracy (c + d) / 2, forgetting a - c, backward transfer c - a.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from made_runs import make_run

from raysim.evaluation.accuracy_matrix import summarise
from raysim.objectives import Metric
from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.quantity_tables import tabulate_results
from raysim.reports.reading import find_runs

DER = {"methods": {"der": {}}}
BOTH = {"methods": {"der": {}, "fed_a_gem": {}}}
Matrix = Sequence[Sequence[float]]


def setting(directory: Path, *runs: tuple[Mapping[str, object], int, Matrix], **summary: object) -> ExperimentSetting:
    for number, (overrides, seed, matrix) in enumerate(runs):
        make_run(directory / str(number), {**overrides, "seed": seed}, {"domain_il": matrix}, **summary)
    (found,) = group_runs(find_runs([directory], []), [])
    return found


def test_means_and_deviations(tmp_path: Path) -> None:
    """FedAvg: accuracies 50, 60, 70 (mean 60, std 10); forgetting 30, 20, 10 (20, 10). DER, one seed: 65 and 5.

    Average incremental: (70 + 50)/2, (70 + 60)/2 and 70 (65, 5); DER's 67.5. The runs recorded no test samples, but
    permutations have as many of each task.
    """
    found = tabulate_results(
        setting(
            tmp_path,
            ({}, 0, [[0.7, 0], [0.4, 0.6]]),
            ({}, 1, [[0.7, 0], [0.5, 0.7]]),
            ({}, 2, [[0.7, 0], [0.6, 0.8]]),
            (DER, 0, [[0.7, 0], [0.65, 0.65]]),
        ),
        "domain_il",
    )
    assert found.headings[2:5] == ("average accuracy, %", "forgetting, %", "backward transfer, %")
    assert found.headings[5:7] == ("average incremental accuracy, %", "accuracy over all samples, %")
    fedavg, der = found.rows
    assert [cell.text for cell in fedavg[:5]] == ["FedAvg", "3", "60.00 ± 10.00", "20.00 ± 10.00", "-20.00 ± 10.00"]
    assert [cell.text for cell in fedavg[5:7]] == ["65.00 ± 5.00", "60.00 ± 10.00"]
    assert [cell.text for cell in fedavg[7:]] == ["0.500 ± 0.000", "1.00 ± 0.00", "3.00 ± 0.00"]
    assert [cell.text for cell in der[:5]] == ["DER", "1", "65.00", "5.00", "-5.00"]
    assert [cell.text for cell in der[5:]] == ["67.50", "65.00", "0.500", "1.00", "3.00"]
    assert [cell.best for cell in der] == [False, False, *[True] * 5, False, False, False]
    assert [cell.second for cell in fedavg] == [cell.best for cell in der]  # one common seed is no test: no dagger
    alike = "Not all groups have the same seeds; differences are over common ones."
    assert found.note == f"{alike} Bold: the best mean. Underlined: the second best."


def test_groups_with_other_data_are_noted(tmp_path: Path) -> None:
    """Seeds 0 and 2 have one digest each, seed 1 two; DER's run with seed 2 is of a version that wrote none."""
    digests = {("a", 0): "ab", ("b", 0): "ab", ("a", 1): "cd", ("b", 1): "ce", ("a", 2): "ef", ("b", 2): None}
    for (name, seed), digest in digests.items():
        overrides = {**(DER if name == "b" else {}), "seed": seed}
        versions = {"raysim": "0.1.0", **({} if digest is None else {"data": digest})}
        make_run(tmp_path / f"{name}{seed}", overrides, {"domain_il": [[0.5, 0], [0.5, 0.5]]}, versions=versions)
    (found,) = group_runs(find_runs([tmp_path], []), [])
    note = tabulate_results(found, "domain_il").note
    assert note.startswith("The data of the groups differ with seed 1, so they may not be comparable. ")


def test_runs_with_other_weights_are_noted(tmp_path: Path) -> None:
    """Also of one method: the file was written again between two seeds. A run of an older version says nothing."""
    for seed, digest in enumerate(("ab", "ab", "cd", None)):
        versions = {"raysim": "0.1.0", **({} if digest is None else {"weights": digest})}
        matrix = {"domain_il": [[0.5, 0], [0.5, 0.5]]}
        make_run(tmp_path / str(seed), {"seed": seed}, matrix, versions=versions)
    (found,) = group_runs(find_runs([tmp_path], []), [])
    note = tabulate_results(found, "domain_il").note
    assert note.startswith("The runs began with files of weights that differ, so they may not be comparable.")
    (alike,) = group_runs(find_runs([tmp_path / "0", tmp_path / "1", tmp_path / "3"], []), [])
    assert "weights" not in tabulate_results(alike, "domain_il").note


def test_the_best_are_marked_and_what_tests_call_worse(tmp_path: Path) -> None:
    """Accuracies over three seeds: 50, 49, 51, then 10 more in each, and 57, 60, 54, which does not differ from that
    (p 0.23, as in the statistics). Forgetting is what is left of 90. Bytes and time are not marked, nor is a bound."""
    rows = {"a": ({}, (0.50, 0.49, 0.51), 2), "b": (DER, (0.60, 0.60, 0.60), 2), "c": (BOTH, (0.57, 0.60, 0.54), 4)}
    rows["d"] = ({"methods": {"joint": {}}}, (0.90, 0.90, 0.90), 1)
    for name, (overrides, accuracies, up) in rows.items():
        for seed, one in enumerate(accuracies):
            matrix = {"domain_il": [[0.9, 0], [one, one]]}
            make_run(tmp_path / f"{name}{seed}", {**overrides, "seed": seed}, matrix, bytes_up=up * 2**20)
    (found,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_results(found, "domain_il")
    assert [row[0].text for row in table.rows] == ["FedAvg", "DER", "DER + Fed-A-GEM", "Joint"]
    assert [row[2].text for row in table.rows] == ["50.00 ± 1.00 †", "60.00 ± 0.00", "57.00 ± 3.00", "90.00 ± 0.00"]
    assert [row[3].text for row in table.rows] == ["40.00 ± 1.00 †", "30.00 ± 0.00", "33.00 ± 3.00", "0.00 ± 0.00"]
    for column in (2, 3):
        marks = [(row[column].best, row[column].second) for row in table.rows]
        assert marks == [(False, False), (True, False), (False, True), (False, False)]
    assert [row[8].text for row in table.rows] == ["2.00 ± 0.00", "2.00 ± 0.00", "4.00 ± 0.00", "1.00 ± 0.00"]
    assert not any(cell.best or cell.second for row in table.rows for cell in row[7:])
    test = "paired t-test over common seeds with Holm's correction over the column, 5%"
    explained = f"†: significantly worse than the best ({test})."
    assert table.note == f"Bold: the best mean. Underlined: the second best. {explained}"


def test_clients_own_accuracies_are_columns_where_a_run_has_them(tmp_path: Path) -> None:
    """FedAvg: worst clients 20 and 40 (mean 30, deviation sqrt(200) = 14.14); DER's run has none."""
    over = {"accuracy": [0.7, 0.2], "mean": 0.45, "std": 0.25}
    for seed, worst in ((0, 0.2), (1, 0.4)):
        make_run(tmp_path / str(seed), {"seed": seed}, per_client={"domain_il": {**over, "worst": worst}})
    make_run(tmp_path / "der", DER)
    (found,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_results(found, "domain_il")
    assert table.headings[7:10] == ("clients' mean, %", "worst client, %", "deviation over clients, %")
    fedavg, der = table.rows
    assert [cell.text for cell in fedavg[7:10]] == ["45.00 ± 0.00", "30.00 ± 14.14", "25.00 ± 0.00"]
    assert [cell.text for cell in der[7:10]] == ["-", "-", "-"]
    assert len(tabulate_results(found, "class_il").headings) == len(table.headings) - 5  # nor those over time


CLASSES = {"scenario": {"kind": "class_incremental", "tasks": 2}}


def test_older_runs_have_the_average_incremental_accuracy_by_task(tmp_path: Path) -> None:
    """Tasks of classes: the summary does not say how large their test sets are. (70 + (40 + 60)/2) / 2 = 60.

    A run of 30 and 10 test samples says more: (70 + (30 * 40 + 10 * 60)/40) / 2 = 57.5, and 45 over all samples.
    """
    matrix = [[0.7, 0], [0.4, 0.6]]
    make_run(tmp_path / "old", CLASSES, {"class_il": matrix})
    (found,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_results(found, "class_il")
    assert table.headings[5:7] == ("average incremental accuracy by task, %", "time per round, s")
    assert table.rows[0][5].text == "60.00"
    new = {protocol: summarise(matrix, None, samples=[30, 10]) for protocol in ("class_il", "class_il_seen")}
    make_run(tmp_path / "new", {**CLASSES, "seed": 1}, evaluation=new, test_samples=[30, 10])
    (both,) = group_runs(find_runs([tmp_path], []), [])
    assert both.protocols == ["class_il"]  # the older run has no second reading, and is of the same setting
    assert tabulate_results(both, "class_il").rows[0][5].text == "60.00 ± 0.00"
    shutil.rmtree(tmp_path / "old")
    (alone,) = group_runs(find_runs([tmp_path], []), [])
    assert (alone.protocols, alone.main_protocols) == (["class_il", "class_il_seen"], ["class_il"])
    assert [cell.text for cell in tabulate_results(alone, "class_il_seen").rows[0][5:7]] == ["57.50", "45.00"]


def test_an_older_run_with_another_metric_has_no_mean_over_samples(tmp_path: Path) -> None:
    """Permutations of one dataset, but R2 over all samples is no mean of the tasks' R2: (0.5 + (0.3 + 0.7)/2) / 2."""
    r2 = summarise([[0.5, 0.1], [0.3, 0.7]], [0.0, 0.0], metric=Metric("R2"))
    del r2["average_incremental_accuracy_by_task"]
    make_run(tmp_path / "old", evaluation={"domain_il": r2})
    (found,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_results(found, "domain_il")
    assert table.headings[5:7] == ("average incremental R2 by task", "time per round, s")
    assert table.rows[0][5].text == "0.500"


def test_one_task_has_no_forgetting(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"scenario.tasks": 1}, {"domain_il": [[0.5]]}, seconds_per_round=None)
    (found,) = group_runs(find_runs([tmp_path], []), [])
    row = [cell.text for cell in tabulate_results(found, "domain_il").rows[0]]
    assert row[2:8] == ["50.00", "-", "-", "50.00", "50.00", "-"]
