"""What an added method changes: the pairs, the families that they are tested in, and their verdicts, by hand."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from made_runs import make_run

from raysim.config.yaml_text import to_yaml
from raysim.reports.gains import say_gain, show_change, show_p, tabulate_gains
from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.paper_tables import gains_table
from raysim.reports.quantity_tables import ACCURACY, ReportTable
from raysim.reports.reading import find_runs
from raysim.reports.statistics import PairedDifference
from raysim.reports.write import write_report
from raysim.system.errors import ConfigError

DER: Mapping[str, object] = {"der": {}}
FED: Mapping[str, object] = {"fed_a_gem": {}}
PROX: Mapping[str, object] = {"fedprox": {}}
BEFORE, AFTER = (0.40, 0.50, 0.60), (0.46, 0.58, 0.70)
"""Of the first task at the end, by seed. The second has 0.6, so accuracy rises by 3, 4, 5 points: p is 0.0202 alone."""


def made(directory: Path, *rows: tuple[Mapping[str, object], Sequence[float]]) -> ExperimentSetting:
    for number, (methods, values) in enumerate(rows):
        for seed, kept in enumerate(values):
            matrix = {"domain_il": [[0.7, 0], [kept, 0.6]]}
            make_run(directory / f"{number}-{seed}", {"methods": methods, "seed": seed}, matrix)
    (found,) = group_runs(find_runs([directory], []), [])
    return found


def texts(table: ReportTable) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_the_change_over_common_seeds(tmp_path: Path) -> None:
    """der to der + fed_a_gem over the seeds 0, 1, 2: accuracies + 3, 4, 5; p = 1 - sqrt(48/50), as in the statistics.

    Forgetting (0.7 - c): c rises by 6, 8, 10, so it falls by as much: mean -8, deviation 2, the same t and p, the only
    one of its column. The interval's half is 4.3027 / sqrt 3 times the deviation.
    """
    (found,) = tabulate_gains(made(tmp_path, (DER, (*BEFORE, 0.9)), ({**DER, **FED}, AFTER)), "domain_il")
    assert found.caption == "domain-IL: what an added method changes in DER"
    assert texts(found) == [
        [
            "DER + Fed-A-GEM",
            "3",
            "+4.00 (+1.52 to +6.48), p 0.020",
            "-8.00 (-12.97 to -3.03), p 0.020",
            "+8.00 (+3.03 to +12.97), p 0.020",
        ]
    ]
    assert found.sentences == [
        (
            "DER + Fed-A-GEM, compared with DER, raises the average accuracy by 4.00 points (3 seeds): "
            "significant, p 0.020."
        )
    ]


@pytest.mark.parametrize(("last", "same"), [("2", True), ("3", False)])
def test_a_method_that_leaves_every_model_as_it_is_did_nothing(tmp_path: Path, last: str, same: bool) -> None:
    """Equal accuracies alone do not show that: the model of the last seed may differ."""
    for name, methods in (("plain", {}), ("prox", PROX)):
        for seed in range(3):
            model = (last if (name, seed) == ("prox", 2) else str(seed)) * 64
            make_run(tmp_path / f"{name}-{seed}", {"methods": methods, "seed": seed}, model_sha256=model)
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    (table,) = tabulate_gains(setting, "domain_il")
    said = "gives the same models, bit by bit" if same else "does not change the average accuracy (3 seeds): not signif"
    assert table.sentences[0].startswith(f"FedProx, compared with FedAvg, {said}")


def test_a_method_that_is_added_to_several_has_a_family_and_the_others_one_by_base(tmp_path: Path) -> None:
    """Fed-A-GEM is added to FedAvg, DER and FedProx: + 3, 4, 5 each, so p is 3 * 0.0202 = 0.0606.

    All three intervals are at 0.05 / 3: 1 - 0.05 / 3 lies within t = sqrt(2 c^2 / (1 - c^2)) = 7.6488, so half is
    7.6488 / sqrt 3 = 4.416. DER and FedProx are each added to FedAvg and to Fed-A-GEM, so they have families, too.
    ER is added to FedAvg alone: p is 0.0202 of one test.
    """
    rows = [(base, BEFORE) for base in ({}, DER, PROX)] + [({**base, **FED}, AFTER) for base in ({}, DER, PROX)]
    setting = made(tmp_path, *rows, ({"er": {}}, AFTER))
    tables = {table.caption.partition(": ")[2]: texts(table) for table in tabulate_gains(setting, "domain_il")}
    assert [*tables] == [
        "what DER changes, added to other methods",
        "what Fed-A-GEM changes, added to other methods",
        "what FedProx changes, added to other methods",
        "what an added method changes in FedAvg",
    ]
    inside = "+4.00 (-0.42 to +8.42), p 0.061"
    assert [row[:3] for row in tables["what Fed-A-GEM changes, added to other methods"]] == [
        ["FedAvg", "3", inside],
        ["DER", "3", inside],
        ["FedProx", "3", inside],
    ]
    assert [row[:3] for row in tables["what DER changes, added to other methods"]] == [
        ["FedAvg", "3", "+0.00"],
        ["Fed-A-GEM", "3", "+0.00"],
    ]
    assert [row[:3] for row in tables["what an added method changes in FedAvg"]] == [
        ["ER", "3", "+4.00 (+1.52 to +6.48), p 0.020"]
    ]


def test_only_one_more_method_with_all_else_alike_is_an_added_method(tmp_path: Path) -> None:
    blocks: list[Mapping[str, Mapping[str, object]]] = [
        {},
        {"der": {"alpha": 0.5}},
        {"der": {"alpha": 1.0}, "fed_a_gem": {}},
        {"fed_a_gem": {}, "fedprox": {}, "der": {"alpha": 0.5}},
        {"fedprox": {}, "der": {"alpha": 0.5}},
        {"der": {"alpha": 0.5}, "fedprox": {}, "fed_a_gem": {}},
    ]
    tables = tabulate_gains(made(tmp_path, *((block, (0.6,)) for block in blocks)), "domain_il")
    assert {(table.caption.rpartition(" in ")[2], row[0].text) for table in tables for row in table.rows} == {
        ("FedAvg", "DER alpha=0.5"),
        ("DER alpha=0.5", "FedProx + DER alpha=0.5"),
        ("FedProx + DER alpha=0.5", "Fed-A-GEM + FedProx + DER alpha=0.5"),
    }


def test_two_rows_with_the_same_methods_and_other_keys_are_named_apart(tmp_path: Path) -> None:
    """ER and a slow ER over FedAvg by hand: + 3, 4, 5 and - 10 points in both seeds; gains.tex has both, too."""
    rows: dict[str, tuple[Mapping[str, object], Sequence[float]]] = {
        "FedAvg": ({}, BEFORE),
        "ER": ({"methods": {"er": {}}}, AFTER),
        "ER, slow": ({"methods": {"er": {}}, "training.optimizer.lr": 0.001}, [kept - 0.2 for kept in BEFORE]),
    }
    names: dict[str, dict[str, str]] = {}
    for label, (keys, values) in rows.items():
        for seed, kept in enumerate(values):
            make_run(tmp_path / f"{label}/{seed}", {**keys, "seed": seed}, {"domain_il": [[0.7, 0], [kept, 0.6]]})
            names[f"{label}/{seed}"] = {"methods": label, "seed": str(seed)}
    (tmp_path / "sweep.yaml").write_text(to_yaml({"name": "two", "runs": names}))
    settings = group_runs(find_runs([tmp_path], []), [])
    (found,) = tabulate_gains(settings[0], "domain_il")
    assert [row[0] for row in texts(found)] == ["FedAvg (ER)", "FedAvg (ER, slow)"]
    assert [sentence.partition(" the ")[0] for sentence in found.sentences] == [
        "ER, compared with FedAvg, raises",
        "ER, slow, compared with FedAvg, lowers",
    ]
    shown = gains_table(settings)
    assert r"FedAvg (ER) &" in shown
    assert r"FedAvg (ER, slow) &" in shown


def test_of_two_bases_with_the_same_methods_the_more_alike_counts(tmp_path: Path) -> None:
    """Two rows of FedAvg, at rates 0.1 and 0.2, and ER at 0.2: what ER adds is measured over the second."""
    rows: Mapping[str, tuple[Mapping[str, object], float]] = {
        "slow": ({}, 0.1),
        "fast": ({}, 0.2),
        "replay": ({"er": {}}, 0.2),
    }
    lines = ["name: made", "runs:"]
    for name, (methods, rate) in rows.items():
        make_run(tmp_path / name, {"methods": methods, "training.optimizer.lr": rate})
        lines.append(f"  {name}: {{methods: {name}, seed: '0'}}")
    (tmp_path / "sweep.yaml").write_text("\n".join([*lines, ""]))
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    (table,) = tabulate_gains(setting, "domain_il")
    assert (table.caption, texts(table)[0][0]) == ("domain-IL: what an added method changes in fast", "replay")


def test_a_bound_is_no_added_method_and_without_a_pair_there_is_no_table(tmp_path: Path) -> None:
    assert tabulate_gains(made(tmp_path / "a", ({}, BEFORE), ({"joint": {}}, AFTER)), "domain_il") == []
    blocks = [({"der": {"alpha": alpha}}, BEFORE) for alpha in (0.5, 1.0)]
    assert tabulate_gains(made(tmp_path / "b", *blocks), "domain_il") == []


def test_rows_that_are_not_nested_are_compared_if_asked_for(tmp_path: Path) -> None:
    """ER over DER: + 3, 4, 5, p 0.0202 alone, as FedProx over DER is no change in any seed and has no p.

    Compared with FedAvg both are in a table already: DER has its one more method.
    """
    rows = [({}, (0.5, 0.5, 0.5)), (DER, BEFORE), ({"er": {}}, AFTER), (PROX, BEFORE)]
    setting = made(tmp_path / "runs", *rows)
    usual = tabulate_gains(setting, "domain_il")
    asked = [("ER", "DER"), ("FedProx", "DER"), ("FedAvg", "DER"), ("ER", "gone")]
    asked += [("ER", "DER"), ("DER", "ER")]  # the same pair again is no other test
    *others, found = tabulate_gains(setting, "domain_il", asked)
    assert [texts(table) for table in others] == [texts(table) for table in usual]
    assert found.caption == "domain-IL: other methods, compared with DER"
    assert [row[:3] for row in texts(found)] == [
        ["ER", "3", "+4.00 (+1.52 to +6.48), p 0.020"],
        ["FedProx", "3", "+0.00"],
    ]
    saying = "ER, compared with DER, raises the average accuracy by 4.00 points (3 seeds): significant, p 0.020."
    assert found.sentences[0] == saying
    report = write_report(tmp_path / "runs", tmp_path / "out", compare=[("ER", "DER")])
    assert saying in [line for table in report.sections[0].tables for line in table.sentences]
    with pytest.raises(ConfigError, match="found no setting with the rows 'ER' and 'gone', allowed: 'FedAvg', 'DER'"):
        write_report(tmp_path / "runs", tmp_path / "out", compare=[("ER", "gone")])


@pytest.mark.parametrize(
    ("p", "text"),
    [(0.0202, "0.020"), (0.00099, "< 0.001"), (0.04996, "0.0499"), (0.0503, "0.0503"), (0.0494, "0.049"), (1, "1.000")],
)
def test_a_p_never_looks_as_if_it_were_on_the_other_side(p: float, text: str) -> None:
    assert show_p(p) == text


def test_a_change_that_looks_like_none_is_less_than_the_last_digit() -> None:
    said = say_gain("A", PairedDifference(0.0003, 0.001, 3, 0.002, 0.6), ACCURACY)
    assert said == "A raises the average accuracy by less than 0.01 points (3 seeds): not significant, p 0.600."


def test_a_difference_that_needs_no_test_says_so() -> None:
    assert show_change(ACCURACY, PairedDifference(2.0, 0.0, 3, None, None)) == "+2.00 in each seed"
    assert show_change(ACCURACY, PairedDifference(2.0, 0.0, 2, None, None)) == "+2.00"
    assert show_change(ACCURACY, None) == "-"
