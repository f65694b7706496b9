"""What a report says of itself: what was run, when it was written, and where its parts are."""

import re
from pathlib import Path

from made_runs import make_run

from raysim.reports.grouping import group_runs
from raysim.reports.reading import find_runs
from raysim.reports.what_was_run import tabulate_facts
from raysim.reports.write import write_report


def test_what_was_run_is_a_table_with_all_values_that_differ(tmp_path: Path) -> None:
    """BASE of the made runs: 36 training samples of 6 numbers, 3 clients, 2 tasks; the default rate is 0.01."""
    versions = {"raysim": "0.1.0", "git": "0123456789abcdef", "torch": "2.9.0", "ray": "2.50.0"}
    for seed in (0, 4):
        commit = {**versions, "git": f"{seed}123456789abcdef"}
        make_run(tmp_path / str(seed), {"seed": seed, "participation.fraction": 0.5}, rounds=[{}], versions=commit)
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    table = tabulate_facts(setting)
    facts = {row[0].text: row[1].text for row in table.rows}
    assert facts["dataset"] == "synthetic, classes 4, shape [6], train 36, test 20, noise 1.0"
    assert facts["scenario"] == "domain_incremental, order same, boundaries synchronous, shift permutation"
    assert facts["model"] == "mlp, hidden [5]"
    assert (facts["clients"], facts["tasks"], facts["rounds"]) == ("3, 50% per round", "2", "1")
    assert (facts["optimizer"], facts["learning rate"]) == ("sgd", "0.01")
    assert (facts["seeds"], facts["commit"]) == ("0; 4", "0123456789ab; 4123456789ab")
    assert (facts["raysim"], facts["torch"], facts["Ray"]) == ("0.1.0", "2.9.0", "2.50.0")


def test_how_many_take_part_and_what_is_evaluated(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"clients.count": 2000, "participation.fraction": 0.004, "dataset.train": 4000})
    make_run(tmp_path / "b", {"participation": {"count": 2}, "evaluation.split": "validation"})
    facts = [
        {row[0].text: row[1].text for row in tabulate_facts(one).rows}
        for one in group_runs(find_runs([tmp_path], []), [])
    ]
    assert sorted(one["clients"] for one in facts) == ["2000, 0.4% per round", "3, 2 per round"]
    assert [one.get("evaluated on") for one in facts if "2 per" in one["clients"]] == ["validation samples"]


def test_the_documents_begin_with_contents_and_say_when_and_what(tmp_path: Path) -> None:
    for seed, (rate, methods) in enumerate([(0.1, {}), (0.1, {"er": {}}), (0.2, {})]):
        make_run(tmp_path / f"runs/{seed}", {"training.optimizer.lr": rate, "methods": methods})
    report = write_report(tmp_path / "runs", tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text()
    contents = page[page.index('<nav aria-label="contents">') : page.index("</nav>")]
    assert re.findall(r'href="#([^"]*)"', contents) == [
        *("setting-1", "setting-1-results", "setting-1-plots", "setting-1-commands"),
        *("setting-2", "setting-2-results", "setting-2-plots", "setting-2-commands"),
        "left-out",
    ]
    assert f"Reported on {report.day.isoformat()} by raysim 0." in page
    sentence = "ER, compared with FedAvg, does not change the average accuracy (1 seed): not significant."
    for name in ("report.html", "report.md"):
        text = (tmp_path / "out" / name).read_text()
        assert text.count("What was run") >= 2
        assert sentence in text.replace("\\", "")
