"""The numbers of the tables, derived by hand from matrices of two tasks.

With rows (a, b) and (c, d): average accuracy (c + d) / 2, forgetting a - c, backward transfer c - a.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from made_runs import make_run

from raysim.evaluation.metrics import summarise
from raysim.objectives import Metric
from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.reading import find_runs
from raysim.reports.tables import tabulate_gains, tabulate_results

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
    assert not any(cell.best for cell in (*fedavg, *der))  # one common seed is no test
    assert found.note == "Not all groups have the same seeds; changes by an added method are over common ones."


def test_what_tests_support_is_marked(tmp_path: Path) -> None:
    """Accuracies over three seeds: 50, 49, 51, then 10 more in each, and 57, 60, 54, which does not differ from that
    (p 0.23, as in the statistics). Bytes do not deviate: two are equal and lower than the third."""
    rows = {"a": ({}, (0.50, 0.49, 0.51), 2), "b": (DER, (0.60, 0.60, 0.60), 2), "c": (BOTH, (0.57, 0.60, 0.54), 4)}
    for name, (overrides, accuracies, up) in rows.items():
        for seed, one in enumerate(accuracies):
            matrix = {"domain_il": [[one, 0], [one, one]]}
            make_run(tmp_path / f"{name}{seed}", {**overrides, "seed": seed}, matrix, bytes_up=up * 2**20)
    (found,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_results(found, "domain_il")
    assert [row[2].text for row in table.rows] == ["50.00 ± 1.00", "60.00 ± 0.00 †", "57.00 ± 3.00 †"]
    assert [row[8].text for row in table.rows] == ["2.00 ± 0.00 †", "2.00 ± 0.00 †", "4.00 ± 0.00"]
    assert not any(cell.best for row in table.rows for cell in row)
    test = "paired t-test over common seeds with Holm's correction over the column, 5%"
    assert table.note == f"†: the best, and those not significantly different from it ({test})."
    for seed in range(3):
        shutil.rmtree(tmp_path / f"c{seed}")
    (found,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_results(found, "domain_il")
    assert [row[2].best for row in table.rows] == [False, True]
    assert table.note == f"Bold: better than all others ({test})."


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


def test_what_an_add_on_changes_over_common_seeds(tmp_path: Path) -> None:
    """der to der + fed_a_gem over the seeds 0, 1, 2: accuracies + 3, 4, 5; p = 1 - sqrt(48/50), as in the statistics.

    Forgetting (0.7 - c): c rises by 6, 8, 10, so it falls by as much: mean -8, deviation 2, the same t and p, the only
    one of its column. The interval's half is 4.3027 / sqrt 3 times the deviation.
    """
    before, after = ({0: 0.40, 1: 0.50, 2: 0.60, 3: 0.9}, {0: 0.46, 1: 0.58, 2: 0.70})
    runs = [
        *((DER, seed, [[0.7, 0], [c, 0.6]]) for seed, c in before.items()),
        *((BOTH, seed, [[0.7, 0], [c, 0.6]]) for seed, c in after.items()),
    ]
    found = tabulate_gains(setting(tmp_path, *runs), "domain_il")
    assert found is not None
    changes = (
        "+4.00 (+1.52 to +6.48), p 0.020",
        "-8.00 (-12.97 to -3.03), p 0.020",
        "+8.00 (+3.03 to +12.97), p 0.020",
    )
    assert [[cell.text for cell in row] for row in found.rows] == [["Fed-A-GEM", "DER", "3", *changes]]


def test_p_is_corrected_over_the_column(tmp_path: Path) -> None:
    """Both add 3, 4, 5 points, p 0.0202 alone; Holm doubles the smaller of the two, and the other is not below it."""
    before, after = {0: 0.40, 1: 0.50, 2: 0.60}, {0: 0.46, 1: 0.58, 2: 0.70}
    prox = {"methods": {"fedprox": {}}}
    runs = [(DER, seed, [[0.7, 0], [c, 0.6]]) for seed, c in before.items()]
    runs += [(BOTH, seed, [[0.7, 0], [c, 0.6]]) for seed, c in after.items()]
    runs += [({}, seed, [[0.7, 0], [c, 0.6]]) for seed, c in before.items()]
    runs += [(prox, seed, [[0.7, 0], [c, 0.6]]) for seed, c in after.items()]
    found = tabulate_gains(setting(tmp_path, *runs), "domain_il")
    assert found is not None
    changes = {(row[0].text, row[1].text): row[3].text for row in found.rows}
    assert changes == {
        ("DER", "FedAvg"): "+0.00",
        ("FedProx", "FedAvg"): "+4.00 (+1.52 to +6.48), p 0.040",
        ("Fed-A-GEM", "DER"): "+4.00 (+1.52 to +6.48), p 0.040",
    }


def test_only_one_more_method_with_all_else_alike_is_an_add_on(tmp_path: Path) -> None:
    matrix = [[0.7, 0], [0.6, 0.6]]
    blocks: list[dict[str, dict[str, object]]] = [
        {},
        {"der": {"alpha": 0.5}},
        {"der": {"alpha": 1.0}, "fed_a_gem": {}},
        {"fed_a_gem": {}, "fedprox": {}, "der": {"alpha": 0.5}},
        {"fedprox": {}, "der": {"alpha": 0.5}},
        {"der": {"alpha": 0.5}, "fedprox": {}, "fed_a_gem": {}},
    ]
    found = tabulate_gains(setting(tmp_path, *(({"methods": block}, 0, matrix) for block in blocks)), "domain_il")
    assert found is not None
    pairs = {(row[0].text, row[1].text) for row in found.rows}
    assert pairs == {
        ("DER alpha=0.5", "FedAvg"),
        ("FedProx", "DER alpha=0.5"),
        ("Fed-A-GEM", "FedProx + DER alpha=0.5"),
    }


def test_settings_of_an_add_on_are_told_apart(tmp_path: Path) -> None:
    """Only the knob in which they differ is named."""
    runs = [({"methods": {"re_fed": {"lam": lam}}}, 0, [[0.7, 0], [0.6, 0.6]]) for lam in (0.1, 0.5)]
    found = tabulate_gains(setting(tmp_path, ({}, 0, [[0.7, 0], [0.4, 0.6]]), *runs), "domain_il")
    assert found is not None
    assert [[cell.text for cell in row[:2]] for row in found.rows] == [
        ["Re-Fed lam=0.1", "FedAvg"],
        ["Re-Fed lam=0.5", "FedAvg"],
    ]


def test_without_a_pair_there_is_no_table(tmp_path: Path) -> None:
    runs = [({"methods": {"der": {"alpha": alpha}}}, 0, [[0.7, 0], [0.6, 0.6]]) for alpha in (0.5, 1.0)]
    assert tabulate_gains(setting(tmp_path, *runs), "domain_il") is None
