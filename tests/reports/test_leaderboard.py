"""The leaderboard's tables, over made-up runs of known accuracies."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from leaderboard import CLOSES, OPENS, insert_tables, main, read_boards, render_boards
from made_runs import make_run

from raysim.config.yaml_text import to_yaml

FedProx = {"fedprox": {"mu": 0.1}}


def make_board(out: Path, rows: Mapping[str, tuple[str, str, Mapping[str, object], Mapping[int, float], str]]) -> None:
    """Write runs of two tasks, of which both have the given accuracy at the end, and the first had 0.9 before."""
    runs = {}
    for folder, (setting, label, methods, accuracies, protocol) in rows.items():
        for seed, accuracy in accuracies.items():
            runs[f"{folder}/seed-{seed}"] = {"seed": str(seed), "setting": setting, "methods": label}
            matrix = ((0.9, 0.0), (accuracy, accuracy))
            make_run(out / folder / f"seed-{seed}", {"seed": seed, "methods": methods}, {protocol: matrix}, seed=seed)
    (out / "sweep.yaml").write_text(to_yaml({"name": "leaderboard", "runs": runs}))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    make_board(
        tmp_path / "results",
        {
            "a/FedAvg": ("a", "FedAvg, lr=0.1", {}, {0: 0.5, 1: 0.6}, "domain_il"),
            "a/FedProx": ("a", "FedProx, mu=0.1", FedProx, {0: 0.7, 1: 0.7}, "domain_il"),
            "a/ER": ("a", "ER", {"er": {}}, {0: 0.6, 1: 0.5}, "domain_il"),
            "a/DER": ("a", "DER", {"der": {}}, {0: 0.99}, "domain_il"),
            "a/Heads": ("a", "Heads", {"er": {"sample_size": 2}}, {0: 0.98, 1: 0.98}, "task_il"),
            "a/Joint": ("a", "Joint, lr=0.1", {"joint": {}}, {0: 0.9, 1: 0.9}, "domain_il"),
            "b/FedAvg": ("b", "FedAvg, lr=0.3", {}, {0: 0.2, 1: 0.2}, "domain_il"),
            "b/FedProx": ("b", "FedProx, mu=0.1", FedProx, {0: 0.1, 1: 0.1}, "domain_il"),
        },
    )
    trial = make_run(tmp_path / "results/validation/FedAvg", {"evaluation.split": "validation"})
    labels = {"evaluation.split": "validation", "setting": "a", "methods": "FedAvg, lr=0.1"}
    path = tmp_path / "results/sweep.yaml"
    path.write_text(path.read_text() + f"  {trial.name}: {labels}\n".replace(trial.name, "validation/FedAvg"))
    return tmp_path / "results"


def test_rows_are_ranked_by_their_mean_and_equal_ones_alike(results: Path) -> None:
    """Of 50 and 60 the mean is 55 and the deviation 7.07; what fell from 90 to x is forgotten by 90 - x."""
    tables = render_boards(read_boards([results]), "results/x")
    rows = tables.partition("### a\n")[2].partition("### b\n")[0].splitlines()
    assert rows[1] == "<!-- results/x -->"
    assert rows[5:12] == [
        "| DER | - | 1 | 99.0 | -9.0 | 1.0 | 3.0 | 10.0 | `setting=a methods=DER` |",
        "| Heads | task-IL | 2 | 98.0 ± 0.0 | -8.0 ± 0.0 | 1.0 | 3.0 | 10.0 | `setting=a methods=Heads` |",
        "| Joint, lr=0.1 | bound | 2 | 90.0 ± 0.0 | 0.0 ± 0.0 | 1.0 | 3.0 | 10.0 | `setting=a methods=Joint` |",
        "| FedProx, mu=0.1 | 1 | 2 | 70.0 ± 0.0 | 20.0 ± 0.0 | 1.0 | 3.0 | 10.0 | `setting=a methods=FedProx` |",
        "| ER | 2 | 2 | 55.0 ± 7.1 | 35.0 ± 7.1 | 1.0 | 3.0 | 10.0 | `setting=a methods=ER` |",
        "| FedAvg, lr=0.1 | 2 | 2 | 55.0 ± 7.1 | 35.0 ± 7.1 | 1.0 | 3.0 | 10.0 | `setting=a methods=FedAvg` |",
        "",
    ]


def test_ranks_are_summed_up_by_their_mean_and_what_has_not_all_comes_last(results: Path) -> None:
    ranks = render_boards(read_boards([results]), "results/x").partition("### a")[0].splitlines()
    assert ranks[2:-1] == [
        "| method | mean rank | a | b |",
        "|---|---|---|---|",
        "| FedAvg | 1.5 | 2 | 1 |",
        "| FedProx | 1.5 | 1 | 2 |",
        "| ER | - | 2 | - |",
    ]


def test_a_row_of_ones_own_stands_among_the_others(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = results.parent / "own"
    make_board(own, {"b/Mine": ("b", "Mine, q=2", {"er": {}}, {0: 0.15, 1: 0.15}, "domain_il")})
    main([str(results), str(own)])
    shown = capsys.readouterr().out.partition("### b")[2]
    assert "| Mine, q=2 | 2 | 2 | 15.0 ± 0.0 |" in shown
    assert "| FedProx, mu=0.1 | 3 |" in shown


def test_only_what_is_between_the_marks_is_written_anew(results: Path) -> None:
    page = results.parent / "page.md"
    page.write_text(f"before\n{OPENS}\n\nold\n\n{CLOSES}\nafter\n")
    main([str(results), "--page", str(page)])
    written = page.read_text()
    assert written.startswith(f"before\n{OPENS}\n\n### Ranks\n")
    assert written.endswith(f"\n\n{CLOSES}\nafter\n")
    assert "old" not in written
    assert insert_tables(written, "x") == f"before\n{OPENS}\n\nx\n\n{CLOSES}\nafter\n"
