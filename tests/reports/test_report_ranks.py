"""Ranks over settings, the overview of a report, and the leaderboard's page, over made-up runs of known accuracies."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from board import BoardSetting, read_rankings
from leaderboard_notes import render_moves, render_search
from leaderboard_page import (
    insert_block,
    render_agreement,
    render_answer,
    render_gains,
    render_pairs,
    render_ranks,
    render_remarks,
    render_settings,
    render_travels,
)
from made_runs import make_run

from raysim.config.yaml_text import to_yaml
from raysim.reports.content import Report, Section
from raysim.reports.grouping import group_runs
from raysim.reports.quantity_tables import ReportTable
from raysim.reports.ranks import tabulate_overview
from raysim.reports.reading import find_runs
from raysim.reports.what_was_run import tabulate_facts

PROX = {"methods": {"fedprox": {"mu": 0.1}}}
ER: Mapping[str, object] = {"methods": {"er": {}}}
Row = tuple[str, str, Mapping[str, object], Mapping[int, float], str]


def make_board(out: Path, rows: Mapping[str, Row]) -> None:
    """Write runs of two tasks, of which both have the given accuracy at the end, and the first had 0.9 before."""
    runs, chosen = {}, {}
    for folder, (setting, label, given, accuracies, protocol) in rows.items():
        for seed, accuracy in accuracies.items():
            name, _, values = label.partition(", ")
            runs[f"{folder}/seed-{seed}"] = {"seed": str(seed), "setting": setting, "methods": name}
            chosen |= {f"{folder}/seed-{seed}": values} if values else {}
            matrix = ((0.9, 0.0), (accuracy, accuracy))
            epochs = {"training.local_epochs": 2 if setting == "b" else 1}
            make_run(out / folder / f"seed-{seed}", {"seed": seed, **given, **epochs}, {protocol: matrix}, seed=seed)
    (out / "sweep.yaml").write_text(to_yaml({"name": "leaderboard", "chosen": chosen, "runs": runs}))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    slow, fast = {"training.optimizer.lr": 0.1}, {"training.optimizer.lr": 0.3}
    make_board(
        tmp_path / "results",
        {
            "a/FedAvg": ("a", "FedAvg, lr=0.1", slow, {0: 0.5, 1: 0.6}, "domain_il"),
            "a/FedProx": ("a", "FedProx, mu=0.1", PROX, {0: 0.7, 1: 0.7}, "domain_il"),
            "a/ER": ("a", "ER", ER, {0: 0.6, 1: 0.5}, "domain_il"),
            "a/DER": ("a", "DER", {"methods": {"der": {}}}, {0: 0.99}, "domain_il"),
            "a/Heads": ("a", "Heads", {"methods": {"er": {"sample_size": 2}}}, {0: 0.98, 1: 0.98}, "task_il"),
            "a/Joint": ("a", "Joint, lr=0.1", {"methods": {"joint": {}}, **slow}, {0: 0.9, 1: 0.9}, "domain_il"),
            "b/FedAvg": ("b", "FedAvg, lr=0.3", fast, {0: 0.2, 1: 0.2}, "domain_il"),
            "b/FedProx": ("b", "FedProx, mu=0.1", PROX, {0: 0.1, 1: 0.1}, "domain_il"),
        },
    )
    trial = make_run(tmp_path / "results/validation/FedAvg", {"evaluation.split": "validation"})
    labels = {"evaluation.split": "validation", "setting": "a", "methods": "FedAvg, lr=0.1"}
    path = tmp_path / "results/sweep.yaml"
    path.write_text(path.read_text() + f"  {trial.name}: {labels}\n".replace(trial.name, "validation/FedAvg"))
    return tmp_path / "results"


def overview(*directories: Path) -> ReportTable:
    table = tabulate_overview(group_runs(find_runs(directories, []), []))
    assert table is not None
    return table


def test_tuned_values_and_other_protocols_make_no_setting(results: Path) -> None:
    """Rates of rows differ, and Heads has accuracies by task only: two settings, of six and of two methods."""
    found = group_runs(find_runs([results], []), [])
    assert [(one.title, len(one.groups), one.protocols) for one in found] == [
        ("a", 6, ["domain_il", "task_il"]),
        ("b", 2, ["domain_il"]),
    ]
    assert [group.label for group in found[0].evaluated("task_il").groups] == ["Heads"]


def test_rows_are_ranked_by_their_mean_and_equal_ones_alike(results: Path) -> None:
    """Of 50 and 60 the mean is 55 and the deviation 7.07; what fell from 90 to x is forgotten by 90 - x.

    In a, two seeds are drawn: (0, 0) makes FedAvg third and (1, 1) ER, each in a quarter of the draws. ER is behind
    FedProx by 10 and 20 points: t is 15 / 5 = 3 with one degree of freedom, p 0.2, so all are one group and share the
    rank 2. In b they differ by 10 twice, which is no test, and share 1.5.
    """
    rankings = read_rankings(results)
    parts = render_settings([BoardSetting(one, "x") for one in rankings]).split("\n\n")
    assert parts[:4] == [
        "### a",
        "No order is significant among the 3 methods. Means over 2 seeds, DER over 1.",
        "<details markdown>\n<summary>All rows of a</summary>",
        "<!-- results/x -->",
    ]
    costs = "4.0 | - | - | 10.0"
    assert parts[4].splitlines()[2:] == [
        "| DER | - | - | 99.0 | -9.0 | 4.0 | - | - | 10.0 |",
        "| Heads | task-IL | - | 98.0 ± 0.0 | -8.0 ± 0.0 | 4.0 | - | - | 10.0 |",
        "| Joint, lr=0.1 | bound | - | 90.0 ± 0.0 | 0.0 ± 0.0 | 4.0 | - | - | 10.0 |",
        "| FedProx, mu=0.1 | 1 | 1 | 70.0 ± 0.0 | 20.0 ± 0.0 | 4.0 | - | - | 10.0 |",
        "| ER | 2 (2 to 3) | 1 | 55.0 ± 7.1 | 35.0 ± 7.1 | 4.0 | - | - | 10.0 |",
        f"| FedAvg, lr=0.1 | 2 (2 to 3) | 1 | 55.0 ± 7.1 | 35.0 ± 7.1 | {costs} |",
    ]
    assert parts[5] == "</details>"
    assert render_ranks(rankings).splitlines() == [
        "| method | mean rank | stores<br>samples | a | b |",
        "|---|---|---|---|---|",
        "| FedAvg | 1.5 (1.5 to 2.0) | no | **2 (2 to 3)** | **1** |",
        "| [FedProx](methods/fedprox.md) | 1.5 | no | **1** | **2** |",
        "| [ER](methods/er.md) | - | yes | **2 (2 to 3)** | - |",
    ]


def test_the_answer_recommends_the_first_row_and_those_whose_intervals_overlap(tmp_path: Path) -> None:
    """ER has 90 with each seed, and DER 94, 85 and 90: 89.7 on average, but first if seed 0 is drawn often. So their
    intervals overlap. The others have equal differences from FedAvg, which are significant without a test; of DER's,
    54, 45 and 50, t is 49.7 / (4.5 / sqrt 3) = 19, p 0.003.
    """
    rows: Mapping[str, Row] = {
        "a/FedAvg": ("a", "FedAvg", {}, {0: 0.4, 1: 0.4, 2: 0.4}, "domain_il"),
        "a/ER": ("a", "ER", ER, {0: 0.9, 1: 0.9, 2: 0.9}, "domain_il"),
        "a/DER": ("a", "DER", {"methods": {"der": {}}}, {0: 0.94, 1: 0.85, 2: 0.9}, "domain_il"),
        "a/FedProx": ("a", "FedProx", PROX, {0: 0.5, 1: 0.5, 2: 0.5}, "domain_il"),
        "a/GPM": ("a", "GPM", {"methods": {"gpm": {}}}, {0: 0.3, 1: 0.3, 2: 0.3}, "domain_il"),
    }
    make_board(tmp_path, rows)
    answer, _, table = render_answer(read_rankings(tmp_path)).partition("\n\n")
    assert answer == (
        "**If clients may store samples, use ER (mean rank 1.0, 95% interval 1.0 to 2.0) or DER. "
        "If clients must not store samples, use FedProx (mean rank 3.0, 95% interval 3.0 to 3.0).**"
    )
    assert table.splitlines()[2:] == [
        "| [ER](methods/er.md) | 1.0 (1.0 to 2.0) | yes | no | 1 of 1 settings |",
        "| [DER](methods/der.md) | 2.0 (1.0 to 2.0) | yes | no | 1 of 1 settings |",
        "| [FedProx](methods/fedprox.md) | 3.0 | no | no | 1 of 1 settings |",
        "| FedAvg | 4.0 | no | no | 0 of 1 settings |",
        "| [GPM](methods/gpm.md) | 5.0 | no | each client | 0 of 1 settings, worse in 1 |",
    ]


def test_a_row_names_the_fronts_that_it_is_on(tmp_path: Path) -> None:
    """ER is the best. Of those with FedAvg's bytes ER is better, and of those with FedProx's steps FedAvg is."""
    rows: Mapping[str, Row] = {
        "ER": ("a", "ER", ER, {0: 0.9}, "domain_il"),
        "FedAvg": ("a", "FedAvg", {}, {0: 0.8}, "domain_il"),
        "FedProx": ("a", "FedProx", PROX, {0: 0.7}, "domain_il"),
    }
    make_board(tmp_path, rows)
    for name, mib, steps in (("ER", 2, 30), ("FedAvg", 2, 20), ("FedProx", 1, 20)):
        path = tmp_path / name / "seed-0" / "summary.json"
        found = json.loads(path.read_text())
        path.write_text(json.dumps(found | {"bytes_up": mib * 2**20, "bytes_down": 0, "steps": steps}))
    lines = render_settings([BoardSetting(one, "x") for one in read_rankings(tmp_path)]).splitlines()
    shown = {line.split(" | ")[0].strip("| "): line.split(" | ")[5:8] for line in lines if line.count(" | ") == 8}
    assert shown == {
        "method": ["sent, MiB", "gradient steps", "on the front of"],
        "ER": ["2.0", "30", "bytes and steps"],
        "FedAvg": ["2.0", "20", "steps"],
        "FedProx": ["1.0", "20", "bytes"],
    }


def test_what_moved_has_the_places_and_means_of_both(tmp_path: Path) -> None:
    """ER is in the new results only, so it counts for no place, nor does the seed 1."""
    for folder, plain, prox, more in (("earlier", 0.5, 0.7, {}), ("now", 0.8, 0.75, {1: 0.1})):
        rows: dict[str, Row] = {
            "FedAvg": ("a", "FedAvg", {}, {0: plain} | more, "domain_il"),
            "FedProx": ("a", "FedProx", PROX, {0: prox} | more, "domain_il"),
        }
        if more:
            rows["ER"] = ("a", "ER", ER, {0: 0.9, 1: 0.9}, "domain_il")
        make_board(tmp_path / folder, rows)
    found = render_moves(*(read_rankings(tmp_path / folder) for folder in ("now", "earlier")))
    assert found.splitlines()[2:] == [
        "| FedAvg | 2: 50.0 → 1: 80.0 |",
        "| FedProx | 1: 70.0 → 2: 75.0 |",
    ]


def test_groups_are_those_not_significantly_worse_than_their_best_and_remarks_exclude(tmp_path: Path) -> None:
    """FedAvg is behind ER by 10, 11 and 12 points: t is 11 / (1 / sqrt 3) = 19, p 0.0028. FedProx is behind ER by 12,
    11 and 10, and ahead of FedAvg by 2, 0 and -2. So FedAvg and FedProx, at the places 2 and 3, share 2.5. SCAFFOLD
    would be first, but a remark excludes it.
    """
    rows: Mapping[str, Row] = {
        "a/ER": ("a", "ER", ER, {0: 0.9, 1: 0.9, 2: 0.9}, "domain_il"),
        "a/FedAvg": ("a", "FedAvg", {}, {0: 0.8, 1: 0.79, 2: 0.78}, "domain_il"),
        "a/FedProx": ("a", "FedProx", PROX, {0: 0.78, 1: 0.79, 2: 0.8}, "domain_il"),
        "a/SCAFFOLD": ("a", "SCAFFOLD", {"methods": {"scaffold": {}}}, {0: 1.0, 1: 1.0, 2: 1.0}, "domain_il"),
        "b/SCAFFOLD": ("b", "SCAFFOLD", {"methods": {"scaffold": {}}}, {0: 1.0, 1: 1.0, 2: 1.0}, "domain_il"),
    }
    make_board(tmp_path, rows)
    remark = {"text": "it saw the test samples", "ranked": False}
    remarks = {f"a/SCAFFOLD/seed-{seed}": remark for seed in range(3)}
    path = tmp_path / "sweep.yaml"
    taken = {f"b/SCAFFOLD/seed-{seed}": "a" for seed in range(3)}
    path.write_text(path.read_text() + to_yaml({"remarks": remarks, "chosen_in": taken}))
    first, second = read_rankings(tmp_path)
    assert first.tiers == {"ER": 1, "FedAvg": 2, "FedProx": 2}
    assert first.shared_ranks == {"ER": 1, "FedAvg": 2.5, "FedProx": 2.5}
    assert second.ranks == {"SCAFFOLD": 1}
    note = "- SCAFFOLD in a is not ranked: it saw the test samples."
    assert [BoardSetting(one, "x").source for one in (first, second)] == [None, "a"]
    taken_note = "- The tuned values in b are those chosen in a."
    assert render_remarks([first, second]).splitlines() == [taken_note, note]
    marks = [group.name for group in first.ranked]
    assert marks == ["ER", "FedAvg", "FedProx"]


def test_means_that_look_equal_are_grouped_in_their_order_whatever_that_of_the_rows(tmp_path: Path) -> None:
    """FedProx (80.02) and FedAvg (79.98) both show 80.0, and share the rank 2.

    FedAvg is behind ER by 9, 10 and 11.06 points: t is 10.02 / (1.03 / sqrt 3) = 16.8, p 0.0035. FedProx is by 30, 1
    and -1.06: p 0.43. So FedProx is of ER's group, and FedAvg, which comes after it, is not.
    """
    rows: Mapping[str, Row] = {
        "FedAvg": ("a", "FedAvg", {}, {0: 0.81, 1: 0.80, 2: 0.7894}, "domain_il"),
        "FedProx": ("a", "FedProx", PROX, {0: 0.6, 1: 0.89, 2: 0.9106}, "domain_il"),
        "ER": ("a", "ER", ER, {0: 0.9, 1: 0.9, 2: 0.9}, "domain_il"),
    }
    for place, order in enumerate([[*rows], [*reversed(rows)]]):
        make_board(tmp_path / str(place), {name: rows[name] for name in order})
        (found,) = read_rankings(tmp_path / str(place))
        assert found.ranks == {"ER": 1, "FedProx": 2, "FedAvg": 2}
        assert found.tiers == {"ER": 1, "FedProx": 1, "FedAvg": 2}


def test_only_groups_with_the_same_seeds_are_ranked(tmp_path: Path) -> None:
    """Joint, a bound, has more seeds, and DER has other ones."""
    rows: Mapping[str, Row] = {
        "a/DER": ("a", "DER", {"methods": {"der": {}}}, {5: 0.95, 6: 0.95}, "domain_il"),
        "a/FedAvg": ("a", "FedAvg", {}, {0: 0.5, 1: 0.6}, "domain_il"),
        "a/ER": ("a", "ER", ER, {0: 0.6, 1: 0.7}, "domain_il"),
        "a/Joint": ("a", "Joint", {"methods": {"joint": {}}}, {0: 0.9, 1: 0.9, 2: 0.9}, "domain_il"),
    }
    make_board(tmp_path, rows)
    (found,) = read_rankings(tmp_path)
    assert found.seeds == (0, 1)
    assert found.ranks == {"ER": 1, "FedAvg": 2}


def test_a_rank_is_inside_its_interval(tmp_path: Path) -> None:
    """15.35 is shown as 15.3 or 15.4, whatever the rounding is; both seeds are equal, so every draw is, too."""
    rows: Mapping[str, Row] = {
        "a/FedAvg": ("a", "FedAvg", {}, {0: 0.1535, 1: 0.1535}, "domain_il"),
        "a/ER": ("a", "ER", ER, {0: 0.154, 1: 0.154}, "domain_il"),
        "a/FedProx": ("a", "FedProx", PROX, {0: 0.1, 1: 0.1}, "domain_il"),
    }
    make_board(tmp_path, rows)
    (found,) = read_rankings(tmp_path)
    assert found.intervals == {name: (rank, rank) for name, rank in found.ranks.items()}


def test_gains_are_paired_with_fedavg_and_bold_if_significant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ER is ahead by 10, 11 and 12 points: 11 ± 4.303 / sqrt 3 alone, with t(2, 0.975) = 4.303. In b FedProx is ahead
    by 1, -2 and 1 points: the standard deviation is 1.732, and the interval 0 ± 4.303.
    """
    rows: Mapping[str, Row] = {
        "a/ER": ("a", "ER", ER, {0: 0.9, 1: 0.9, 2: 0.9}, "domain_il"),
        "a/FedAvg": ("a", "FedAvg", {}, {0: 0.8, 1: 0.79, 2: 0.78}, "domain_il"),
        "b/FedAvg": ("b", "FedAvg", {}, {0: 0.5, 1: 0.5, 2: 0.5}, "domain_il"),
        "b/FedProx": ("b", "FedProx", PROX, {0: 0.51, 1: 0.48, 2: 0.51}, "domain_il"),
    }
    make_board(tmp_path, rows)
    assert render_gains(read_rankings(tmp_path)).splitlines() == [
        "| method | a | b |",
        "|---|---|---|",
        "| ER | **11.0 (8.5 to 13.5)** | - |",
        "| FedProx | - | 0.0 (-4.3 to 4.3) |",
    ]
    monkeypatch.setattr("leaderboard_page.PAIRS", (("FedAvg", "ER"), ("FedProx", "FedAvg")))
    assert render_pairs(read_rankings(tmp_path)).splitlines()[2:] == [
        "| FedAvg | ER | **-11.0 (-13.5 to -8.5)** | - |",
        "| FedProx | FedAvg | - | 0.0 (-4.3 to 4.3) |",
    ]


def test_other_data_have_their_rank_correlation_with_the_setting_of_their_choices(tmp_path: Path) -> None:
    """In b the order of the first two of four is exchanged: d² = 1 + 1, and rho = 1 - 6 * 2 / (4 * 15) = 0.8. All seeds
    are equal, so every draw is, too.
    """
    names = {"FedAvg": {}, "ER": ER, "FedProx": PROX, "GPM": {"methods": {"gpm": {}}}}
    accuracies = {"a": (0.9, 0.8, 0.7, 0.6), "b": (0.8, 0.9, 0.7, 0.6)}
    rows: Mapping[str, Row] = {
        f"{setting}/{name}": (setting, name, given, {0: accuracy, 1: accuracy}, "domain_il")
        for setting, of_setting in accuracies.items()
        for (name, given), accuracy in zip(names.items(), of_setting, strict=True)
    }
    make_board(tmp_path, rows)
    path = tmp_path / "sweep.yaml"
    path.write_text(path.read_text() + to_yaml({"chosen_in": {f"b/{name}/seed-0": "a" for name in names}}))
    settings = [BoardSetting(one, "x") for one in read_rankings(tmp_path)]
    assert render_travels(settings).splitlines()[2:] == ["| b | a | 4 | 0.80 (0.80 to 0.80) |"]
    rankings = [one.ranking for one in settings]
    assert render_agreement(rankings).splitlines()[2:] == ["| b | 0.80 (0.80 to 0.80), 4 |"]


def test_a_noisy_method_is_in_no_better_group_than_one_with_a_better_mean(tmp_path: Path) -> None:
    """FedAvg is behind ER by 1 point with each seed, which is significant. SCAFFOLD is behind ER by -10, 5 and 25
    points: t is 6.7 / (17.6 / sqrt 3) = 0.66, which is not. But its mean is below that of FedAvg, which ends the
    first group. It is behind FedAvg by -11, 4 and 24: t is 0.56.
    """
    rows: Mapping[str, Row] = {
        "a/SCAFFOLD": ("a", "SCAFFOLD", {"methods": {"scaffold": {}}}, {0: 1.0, 1: 0.85, 2: 0.65}, "domain_il"),
        "a/FedAvg": ("a", "FedAvg", {}, {0: 0.89, 1: 0.89, 2: 0.89}, "domain_il"),
        "a/ER": ("a", "ER", ER, {0: 0.9, 1: 0.9, 2: 0.9}, "domain_il"),
    }
    make_board(tmp_path, rows)
    (found,) = read_rankings(tmp_path)
    assert found.tiers == {"ER": 1, "FedAvg": 2, "SCAFFOLD": 2}


def test_the_overview_has_methods_by_settings_in_the_sweep_s_order(results: Path) -> None:
    """Without tuned values in the names. DER is the best of a: bounds are not compared; its one seed has no rank."""
    table = overview(results)
    assert table.headings == ["methods", "1: a", "2: b"]  # two ranked methods are too few for ranks
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["FedAvg", "55.0 ± 7.1", "20.0 ± 0.0"],
        ["FedProx", "70.0 ± 0.0", "10.0 ± 0.0"],
        ["ER", "55.0 ± 7.1", "-"],
        ["DER", "99.0", "-"],
        ["Joint", "90.0 ± 0.0", "-"],
    ]
    assert [(row[1].best, row[1].second) for row in table.rows] == [
        (False, False),
        (False, True),
        (False, False),
        (True, False),
        (False, False),
    ]


def test_a_custom_row_is_among_the_others(results: Path) -> None:
    """15 is between 20 and 10: second of three. ER's one row in b makes three methods with a rank in both."""
    own = results.parent / "own"
    mine = {"methods": {"er": {"sample_size": 4}}}
    rows: Mapping[str, Row] = {
        "b/Mine": ("b", "Mine, q=2", mine, {0: 0.15, 1: 0.15}, "domain_il"),
        "a/Mine": ("a", "Mine, q=3", mine, {0: 0.15, 1: 0.15}, "domain_il"),
    }
    make_board(own, rows)
    table = overview(results, own)
    assert table.headings[-3:] == ["mean rank", "95% interval", "mean rank of groups"]
    found = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert found["Mine"][:3] == ["15.0 ± 0.0", "15.0 ± 0.0", "3.0"]  # fourth of four, second of three
    assert (found["FedAvg"][2], found["FedProx"][2], found["ER"][2:]) == ("1.5", "2.0", ["-", "-", "-"])


def test_a_report_counts_methods_without_their_tuned_values(results: Path) -> None:
    """FedAvg has other rates in a and b: six methods in all, of 11 runs in a and 4 in b."""
    settings = group_runs(find_runs([results], []), [])
    report = Report([Section(setting, tabulate_facts(setting), [], [], []) for setting in settings], [], results)
    assert report.extent == "15 runs, 6 methods, 2 settings"


def test_one_setting_has_no_overview(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    assert tabulate_overview(group_runs(find_runs([tmp_path], []), [])) is None


def test_the_page_has_what_was_tried_and_a_star_at_the_ends_of_lists(results: Path, tmp_path: Path) -> None:
    """The rows of the made-up board that have tuned values: FedAvg's rate is 0.1 in a and 0.3 in b, of 0.1 to 0.3."""
    sweep = {
        "name": "leaderboard",
        "base": "quickstart",
        "grid": {"setting": {"a": {"clients.count": 2}, "b": {"clients.count": 3}}},
        "tune": {
            "methods": {
                "FedAvg": {"training.optimizer.lr": [0.1, 0.2, 0.3]},
                "FedProx": {"methods.fedprox.mu": [0.01, 0.1, 1.0], "training.batch_size": 8},
            }
        },
    }
    path = tmp_path / "board.yaml"
    path.write_text(to_yaml(sweep))
    assert render_search(read_rankings(results), path).splitlines()[2:] == [
        "| FedAvg | lr 0.1, 0.2, 0.3 | lr=0.1* | lr=0.3* |",
        "| FedProx | mu 0.01, 0.1, 1.0 | mu=0.1 | mu=0.1 |",
    ]


def test_only_what_is_between_the_marks_of_a_name_is_written_anew() -> None:
    opens, closes = "<!-- ranks, written by make docs -->", "<!-- end of ranks -->"
    other = "<!-- other, written by make docs -->\n\nkept\n\n<!-- end of other -->"
    page = f"before\n{opens}\n\nold\n\n{closes}\n{other}\nafter\n"
    assert insert_block(page, "ranks", "x") == f"before\n{opens}\n\nx\n\n{closes}\n{other}\nafter\n"
    with pytest.raises(ValueError, match="the page has no marks <!-- absent, written by make docs -->"):
        insert_block(page, "absent", "x")
