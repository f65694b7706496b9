"""The numbers of the tables, derived by hand from matrices of two tasks.

With rows (a, b) and (c, d): average accuracy (c + d) / 2, forgetting a - c, backward transfer c - a.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from made_runs import make_run

from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.reading import find_runs
from raysim.reports.tables import tabulate_results

DER = {"methods": {"der": {}}}
BOTH = {"methods": {"der": {}, "fed_a_gem": {}}}
Matrix = Sequence[Sequence[float]]


def setting(directory: Path, *runs: tuple[Mapping[str, object], int, Matrix], **summary: object) -> ExperimentSetting:
    for number, (overrides, seed, matrix) in enumerate(runs):
        make_run(directory / str(number), {**overrides, "seed": seed}, {"domain_il": matrix}, **summary)
    (found,) = group_runs(find_runs([directory], []), [])
    return found


def test_means_and_deviations(tmp_path: Path) -> None:
    """FedAvg: accuracies 50, 60, 70 (mean 60, std 10); forgetting 30, 20, 10 (20, 10). DER, one seed: 65 and 5."""
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
    fedavg, der = found.rows
    assert [cell.text for cell in fedavg[:5]] == ["FedAvg", "3", "60.00 ± 10.00", "20.00 ± 10.00", "-20.00 ± 10.00"]
    assert [cell.text for cell in fedavg[5:]] == ["0.500 ± 0.000", "1.00 ± 0.00", "3.00 ± 0.00"]
    assert [cell.text for cell in der] == ["DER", "1", "65.00", "5.00", "-5.00", "0.500", "1.00", "3.00"]
    assert [cell.best for cell in der] == [False, False, True, True, True, False, False, False]
    assert [cell.second for cell in fedavg] == [cell.best for cell in der]  # one common seed is no test: no dagger
    alike = "Not all groups have the same seeds; differences are over common ones."
    assert found.note == f"{alike} Bold: the best mean. Underlined: the second best."


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
    assert [row[6].text for row in table.rows] == ["2.00 ± 0.00", "2.00 ± 0.00", "4.00 ± 0.00", "1.00 ± 0.00"]
    assert not any(cell.best or cell.second for row in table.rows for cell in row[5:])
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
    assert table.headings[5:8] == ("clients' mean, %", "worst client, %", "deviation over clients, %")
    fedavg, der = table.rows
    assert [cell.text for cell in fedavg[5:8]] == ["45.00 ± 0.00", "30.00 ± 14.14", "25.00 ± 0.00"]
    assert [cell.text for cell in der[5:8]] == ["-", "-", "-"]
    assert len(tabulate_results(found, "class_il").headings) == len(table.headings) - 3


def test_one_task_has_no_forgetting(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"scenario.tasks": 1}, {"domain_il": [[0.5]]}, seconds_per_round=None)
    (found,) = group_runs(find_runs([tmp_path], []), [])
    assert [cell.text for cell in tabulate_results(found, "domain_il").rows[0][2:6]] == ["50.00", "-", "-", "-"]
