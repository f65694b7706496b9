"""What a report begins with: the best methods, and the sentence with its interval."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from made_runs import make_run

from raysim.config.yaml_text import to_yaml
from raysim.reports.first_screen import Lead, lead_setting, lead_settings
from raysim.reports.grouping import group_runs
from raysim.reports.ranks import compare_settings
from raysim.reports.reading import find_runs
from raysim.reports.runs_table import tabulate_runs


def make_method(folder: Path, methods: Mapping[str, object], averages: Sequence[float], **overrides: object) -> None:
    """Make a run for each average; it is that of both tasks."""
    name = "-".join(methods) or "none"
    for seed, average in enumerate(averages):
        changed = {
            "seed": seed,
            "methods": methods,
            **{key.replace("__", "."): value for key, value in overrides.items()},
        }
        make_run(folder / f"{name}-{seed}", changed, {"domain_il": [[average, 0.0], [average, average]]})


def lead(folder: Path, asked: Sequence[tuple[str, str]] = ()) -> Lead:
    (setting,) = group_runs(find_runs([folder], []), [])
    return lead_setting(setting, asked)


def texts(found: Lead) -> list[list[str]]:
    return [[cell.text for cell in row] for row in found.table.rows]


def test_the_sentence_has_the_difference_its_interval_and_the_verdict(tmp_path: Path) -> None:
    """Differences of 10, 12 and 14: mean 12, deviation 2, half 4.3027 * 2 / sqrt(3) = 4.97; t = 10.39, p 0.009."""
    make_method(tmp_path, {}, [0.50, 0.50, 0.50])
    make_method(tmp_path, {"er": {}}, [0.60, 0.62, 0.64])
    found = lead(tmp_path)
    first, second = found.sentences
    assert first == "ER is the best of 2 methods: average accuracy 62.00 ± 2.00 % (domain-IL, 3 seeds)."
    difference = "ER: +12.00 points of average accuracy compared with FedAvg, 95% interval +7.03 to +16.97"
    assert second == f"{difference}, 3 seeds: significant, p 0.009."
    assert [row[:3] for row in texts(found)] == [
        ["ER", "62.00 ± 2.00", "+12.00 (+7.03 to +16.97)"],
        ["FedAvg", "50.00 ± 0.00 †", "-"],
    ]


def test_the_interval_of_several_tests_is_called_corrected(tmp_path: Path) -> None:
    """The same 12 and 4.97 in a family of two: ER's p, 2 * 0.00914 = 0.018, is the smaller, so its level is 2.5%.

    The quantile of t with 2 degrees of freedom at 1 - 0.0125 is 6.2053: half is 6.2053 * 2 / sqrt(3) = 7.17.
    """
    make_method(tmp_path, {}, [0.50, 0.50, 0.50])
    make_method(tmp_path, {"er": {}}, [0.60, 0.62, 0.64])
    make_method(tmp_path, {"ewc": {}}, [0.48, 0.54, 0.57])
    found = lead(tmp_path)
    difference = "ER: +12.00 points of average accuracy compared with FedAvg, interval with Holm's correction"
    assert found.sentences[1] == f"{difference} +4.83 to +19.17, 3 seeds: significant, p 0.018."
    assert found.table.headings[2] == "compared with FedAvg, points (interval with Holm's correction)"


def test_a_difference_that_may_be_chance_is_not_significant(tmp_path: Path) -> None:
    """Differences of -2, 4 and 7: mean 3, deviation 4.583, half 4.3027 * 4.583 / sqrt(3) = 11.38."""
    make_method(tmp_path, {}, [0.50, 0.50, 0.50])
    make_method(tmp_path, {"er": {}}, [0.48, 0.54, 0.57])
    assert "interval -8.38 to +14.38, 3 seeds: not significant, p 0.37" in lead(tmp_path).sentences[1]


def test_the_five_best_are_shown_without_bounds_and_compared_with_the_second(tmp_path: Path) -> None:
    methods = ("er", "fedprox", "ewc", "scaffold", "lwf", "a_gem", "joint")
    make_method(tmp_path, {}, [0.30])
    for place, name in enumerate(methods):
        make_method(tmp_path, {name: {}}, [0.40 + 0.05 * place])
    found = lead(tmp_path, [("ER", "EWC")])
    assert [row[0] for row in texts(found)] == ["A-GEM", "LwF", "SCAFFOLD", "EWC", "FedProx"]
    assert found.table.caption == "domain-IL: the 5 best of 7 methods, by average accuracy"
    assert [line.partition(" of average")[0] for line in found.sentences[1:]] == [
        "A-GEM: +35.00 points",
        "A-GEM: +5.00 points",
        "ER: -10.00 points",
    ]
    assert found.sentences[2].endswith("compared with LwF, 1 seed: no test: one seed.")
    assert found.sentences[3].endswith("compared with EWC, 1 seed: no test: one seed.")


def test_equal_methods_are_named_together(tmp_path: Path) -> None:
    make_method(tmp_path, {}, [0.50, 0.60])
    make_method(tmp_path, {"er": {}}, [0.50, 0.60])
    first, second = lead(tmp_path).sentences
    assert first.startswith("ER, FedAvg are equal and the best of 2 methods: average accuracy 55.00 ± 7.07 %")
    assert second.endswith("2 seeds: no test: the same in each seed.")


def test_a_single_run_has_its_numbers_and_no_interval(tmp_path: Path) -> None:
    """0.6 and 0.7 after the last task: 65 on average; the first task fell from 0.8 to 0.6."""
    make_run(tmp_path / "run", {"seed": 4}, {"domain_il": [[0.8, 0.2], [0.6, 0.7]]})
    found = lead(tmp_path)
    assert found.sentences == [
        "FedAvg: average accuracy 65.00 %, forgetting 20.00 % (domain-IL, 2 tasks).",
        "Seed 4 alone: one seed gives no interval.",
    ]
    assert texts(found) == [["domain-IL", "65.00", "20.00", "-20.00"]]


def test_several_settings_have_one_rank_with_its_interval_and_the_best_first(tmp_path: Path) -> None:
    """ER has 70, 70, 70 and 30 by seed, FedAvg 50.

    Of four seeds drawn with replacement, three or more are the last one with a probability of 4 (3/4) / 4^3 + 1 / 4^4,
    0.051: then FedAvg is better. With two of them, 0.211, both are the first. So ER's mean rank over two settings is
    1.5 or more with 0.099 and 2 with 0.003, which is below 0.025. FedAvg's is 1 with 0.262^2, 0.069.
    """
    for name, rate in (("slow", 0.1), ("fast", 0.2)):
        for methods, averages in (({}, [0.5] * 4), ({"fedprox": {}}, [0.2] * 4), ({"er": {}}, [0.7, 0.7, 0.7, 0.3])):
            make_method(tmp_path / name, methods, averages, training__optimizer__lr=rate)
    standings = compare_settings(group_runs(find_runs([tmp_path], []), []))
    assert standings is not None
    found = lead_settings(standings)
    rank, overlap, better = found.sentences
    assert rank == "ER has the best mean rank of 3 methods that are in all 2 settings: 1.0, 95% interval 1.0 to 1.5."
    assert overlap == "Its interval overlaps with the interval of FedAvg."
    counts = "Compared with FedAvg, ER is better in 2 of 2 settings, significantly in 0"
    assert better == f"{counts}: +10.0 points of average accuracy."
    assert [row[:2] for row in texts(found)] == [
        ["ER", "1.0 (1.0 to 1.5)"],
        ["FedAvg", "2.0 (1.0 to 2.0)"],
        ["FedProx", "3.0 (3.0 to 3.0)"],
    ]
    assert [heading for heading in found.table.headings if "rank" in heading] == ["mean rank"]


def test_without_ranks_the_method_that_is_best_most_often_comes_first(tmp_path: Path) -> None:
    for rate, averages in ((0.1, (0.5, 0.6)), (0.2, (0.5, 0.7)), (0.3, (0.5, 0.4))):
        for methods, average in zip(({}, {"er": {}}), averages, strict=True):
            make_method(tmp_path / str(rate), methods, [average], training__optimizer__lr=rate)
    standings = compare_settings(group_runs(find_runs([tmp_path], []), []))
    assert standings is not None
    found = lead_settings(standings)
    assert found.sentences[0] == "ER is the best method in 2 of 3 settings."
    assert found.sentences[1].endswith("significantly in 0: -10.0 to +20.0 points of average accuracy.")
    assert [row[0] for row in texts(found)] == ["ER", "FedAvg"]


def test_of_one_method_in_several_settings_the_range_is_told(tmp_path: Path) -> None:
    for rate, average in ((0.1, 0.5), (0.2, 0.7), (0.3, 0.4)):
        make_method(tmp_path / str(rate), {}, [average], training__optimizer__lr=rate)
    standings = compare_settings(group_runs(find_runs([tmp_path], []), []))
    assert standings is not None
    assert lead_settings(standings).sentences == ["FedAvg: average accuracy 40.0 to 70.0 % in 3 settings."]


def test_the_runs_have_columns_of_the_keys_that_differ(tmp_path: Path) -> None:
    """Both rows set the learning rate; the memory is the same."""
    rows = {"FedAvg": ({}, 0.1), "ER": ({"er": {"sample_size": 4}}, 0.2)}
    for name, (methods, rate) in rows.items():
        make_run(tmp_path / name, {"methods": methods, "training.optimizer.lr": rate, "memory.capacity": 7})
    sweep = {"name": "s", "runs": {name: {"methods": name} for name in rows}}
    (tmp_path / "sweep.yaml").write_text(to_yaml(sweep))
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_runs(setting)
    assert {*table.headings[6:]} == {"er.sample_size", "training.optimizer.lr"}
    found = [dict(zip(table.headings, [cell.text for cell in row], strict=True)) for row in table.rows]
    assert [row["er.sample_size"] for row in found] == ["-", "4"]
    assert [row["training.optimizer.lr"] for row in found] == ["0.1", "0.2"]
    assert [row["sent, MiB"] for row in found] == ["4.00", "4.00"]  # 1 up and 3 down


def test_keys_that_all_runs_share_have_no_column(tmp_path: Path) -> None:
    make_method(tmp_path, {"er": {"sample_size": 4}}, [0.5, 0.6])
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    assert [*tabulate_runs(setting).headings] == [
        *("methods", "seed", "average accuracy, %", "forgetting, %", "seconds", "sent, MiB")
    ]


def test_a_method_with_fewer_seeds_is_not_the_best(tmp_path: Path) -> None:
    """ER has the easy seed alone. Its 90 % are not compared with means over both seeds."""
    make_method(tmp_path, {}, [0.50, 0.80])
    make_method(tmp_path, {"ewc": {}}, [0.55, 0.85])
    make_run(tmp_path / "er", {"seed": 1, "methods": {"er": {}}}, {"domain_il": [[0.9, 0.0], [0.9, 0.9]]})
    found = lead(tmp_path)
    assert found.best == "EWC"
    assert found.sentences[0].startswith("EWC is the best of 2 methods with the same seeds: average accuracy 70.00 ")
    assert found.sentences[1] == "ER has other seeds, so no rank."
    assert [row[0] for row in texts(found)] == ["EWC", "FedAvg", "ER"]


def say(folder: Path) -> Sequence[str]:
    standings = compare_settings(group_runs(find_runs([folder], []), []))
    assert standings is not None
    return lead_settings(standings).sentences


def test_settings_without_a_common_method_have_no_best_one(tmp_path: Path) -> None:
    make_method(tmp_path / "1", {"er": {}}, [0.5], training__batch_size=1)
    make_method(tmp_path / "2", {"ewc": {}}, [0.6], training__batch_size=2)
    assert say(tmp_path) == ["No two methods are in the same one of 2 settings, so there is no best one."]


def test_methods_that_are_equally_often_the_best_are_all_named(tmp_path: Path) -> None:
    for size, (best, worse) in enumerate(((0.6, 0.5), (0.5, 0.6)), 1):
        make_method(tmp_path / f"{size}", {"er": {}}, [best], training__batch_size=size)
        make_method(tmp_path / f"{size}", {"ewc": {}}, [worse], training__batch_size=size)
    assert say(tmp_path) == ["ER and EWC are each the best method in 1 of 2 settings."]


def test_methods_of_the_same_best_mean_rank_are_all_named(tmp_path: Path) -> None:
    for size, (best, worse) in enumerate(((0.6, 0.5), (0.5, 0.6)), 1):
        for name, value in (("er", best), ("ewc", worse), ("fedprox", 0.4)):
            make_method(tmp_path / f"{size}", {name: {}}, [value], training__batch_size=size)
    assert say(tmp_path) == ["ER and EWC have the best mean rank of 3 methods that are in all 2 settings: 1.5."]
