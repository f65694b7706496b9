"""A report on top-k accuracies says so in every table, plot and file."""

import csv
from pathlib import Path

from made_runs import make_run

from raysim.reports.write import write_report


def test_every_table_plot_and_file_says_top_k(tmp_path: Path) -> None:
    for number, methods in enumerate(({}, {"er": {}}, {"fedprox": {"mu": 0.1}}, {"fedprox": {"mu": 0.2}})):
        make_run(tmp_path / f"{number}", {"methods": methods, "evaluation.top_k": 3}, top_k=3)
    report = write_report([tmp_path])
    (section,) = report.sections
    assert section.tables
    assert all(table.caption.startswith("domain-IL top-3: ") for table in section.tables)
    of_accuracy = [plot.caption for plot in section.plots if "-domain_il-" in plot.stem]
    assert len(of_accuracy) >= 4  # matrices, after each task, forgetting, the trade-off of mu
    assert all("domain-IL top-3" in caption for caption in of_accuracy)
    for name in ("report.csv", "means.csv"):
        with (tmp_path / name).open() as file:
            assert [row["top_k"] for row in csv.DictReader(file)] == ["3"] * 4
    for name in ("report.md", "report.tex", "report.html"):
        assert "domain-IL top-3: mean" in (tmp_path / name).read_text().replace("$-$", "-").replace("\\-", "-")
