"""What a report says of itself: what was run, when it was written, and where its parts are."""

import re
from pathlib import Path

from made_runs import make_run

from raysim.config.yaml_text import to_yaml
from raysim.reports.grouping import group_runs
from raysim.reports.quantity_tables import ReportTable
from raysim.reports.reading import find_runs
from raysim.reports.what_was_run import tabulate_facts, tabulate_hyperparameters
from raysim.reports.write import write_report
from raysim.system.version import VERSION


def as_texts(table: ReportTable) -> dict[str, str]:
    return {row[0].text: row[1].text for row in table.rows}


def test_what_was_run_is_a_table_with_all_values_that_differ(tmp_path: Path) -> None:
    """BASE of the made runs: 36 training samples of 6 numbers, 3 clients, 2 tasks; the default rate is 0.01."""
    versions = {"raysim": "0.1.0", "torch": "2.9.0", "ray": "2.50.0", "data": "fedcba9876543210"}
    for seed in (0, 4):
        commit = {**versions, "git": f"{seed}123456789abcdef"}
        make_run(tmp_path / str(seed), {"seed": seed, "participation.fraction": 0.5}, rounds=[{}], versions=commit)
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    facts = as_texts(tabulate_facts(setting))
    assert facts["dataset"] == "synthetic, input_scale 1.0, classes 4, shape [6], train 36, test 20, noise 1.0"
    assert facts["scenario"] == "domain_incremental, tasks 2, order same, boundaries synchronous, shift permutation"
    assert facts["model"] == "mlp, precision float32, hidden [5]"
    assert (facts["clients"], facts["participation"]) == ("count 3", "fraction 0.5, sampler uniform")
    assert (facts["rounds"], "optimizer.name sgd, optimizer.lr 0.01, " in facts["training"]) == ("1", True)
    assert (facts["seeds"], facts["commit"]) == ("0; 4", "0123456789ab; 4123456789ab")
    assert (facts["raysim"], facts["torch"], facts["Ray"]) == ("0.1.0", "2.9.0", "2.50.0")
    assert facts["digest of the data"] == "fedcba987654"
    assert "digest of the weights" not in facts


def test_what_was_run_names_weights_and_machines(tmp_path: Path) -> None:
    for seed, machine in enumerate(("A CPU with AVX2, torch 2", "Another with AVX512, torch 2")):
        versions = {"raysim": "0.1.0", "weights": "0123456789abcdef", "machine": machine}
        make_run(tmp_path / str(seed), {"seed": seed}, versions=versions)
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    facts = as_texts(tabulate_facts(setting))
    assert facts["digest of the weights"] == "0123456789ab"
    assert facts["machine"] == "A CPU with AVX2, torch 2; Another with AVX512, torch 2"


def test_how_many_take_part_and_what_is_evaluated(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"participation": {"count": 2}, "evaluation.split": "validation"})
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    facts = as_texts(tabulate_facts(setting))
    assert facts["participation"] == "count 2, sampler uniform"
    assert "split validation, " in facts["evaluation"]


def test_every_key_that_changes_results_is_in_one_of_the_tables(tmp_path: Path) -> None:
    """Rows of a sweep have their rates. What was run has the rate of most rows, and the other one is with its row."""
    common = {"training.lr_decay.per_round": 0.9, "training.clip_norm": 5.0, "memory.capacity": 7}
    rows = {"ER": {"er": {"sample_size": 4}}, "DER, 0.2": {"der": {"alpha": 0.5}, "fedprox": {"mu": 0.1}}, "FL": {}}
    for number, methods in enumerate(rows.values()):
        made = {**common, "methods": methods, "training.optimizer.lr": 0.1 + 0.1 * (number == 1)}
        make_run(tmp_path / str(number), made)
    runs = {str(number): {"methods": row} for number, row in enumerate(rows)}
    (tmp_path / "sweep.yaml").write_text(to_yaml({"name": "s", "runs": runs}))
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    facts = as_texts(tabulate_facts(setting))
    assert "lr_decay.per_round 0.9, " in facts["training"]
    assert "clip_norm 5.0, " in facts["training"]
    assert "optimizer.lr 0.1, " in facts["training"]
    assert facts["memory"] == "capacity 7, per client"
    table = tabulate_hyperparameters(setting)
    assert table is not None
    assert as_texts(table) == {
        "ER": "er.sample_size=4",
        "DER, 0.2": "der.alpha=0.5, der.beta=0.0, der.sample_size=32, fedprox.mu=0.1, training.optimizer.lr=0.2",
        "FL": "-",
    }
    out = write_report(tmp_path, tmp_path / "out").out
    for name in ("report.md", "report.tex", "report.html"):
        said = (out / name).read_text().replace("\\", "")
        assert "clip_norm" in said
        assert "fedprox.mu=0.1" in said
    (first, *_) = (out / "report.csv").read_text().splitlines()
    assert "training.optimizer.lr" in first.split(",")


def test_without_hyperparameters_there_is_no_table_of_them(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    assert tabulate_hyperparameters(setting) is None


def test_the_documents_link_their_parts_and_say_when_and_what(tmp_path: Path) -> None:
    for seed, (rate, methods) in enumerate([(0.1, {}), (0.1, {"er": {}}), (0.2, {})]):
        make_run(tmp_path / f"runs/{seed}", {"training.optimizer.lr": rate, "methods": methods})
    report = write_report(tmp_path / "runs", tmp_path / "out")
    first = (tmp_path / "out/report.html").read_text()
    assert re.findall(r'<a href="([^"]*)"', first) == ["settings/made.html", "settings/made-2.html"]
    page = (tmp_path / "out/settings/made.html").read_text()
    parts = ("results", "plots", "runs", "what", "commands")
    assert re.findall(r'<details class="part" id="([^"]*)"', page) == [f"setting-1-{part}" for part in parts]
    day = f"Reported on {report.day.isoformat()} by raysim {VERSION}"
    sentence = "ER, compared with FedAvg, does not change the average accuracy (1 seed): not significant."
    for text in (page, (tmp_path / "out/report.md").read_text()):
        assert day in text
        assert text.count("What was run") >= 2
        assert sentence in text.replace("\\", "")
