"""Markdown, LaTeX and CSV: what is escaped, what is bold, and that numbers come back as they were."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import make_run
from rich.console import Console

from raysim.reports.content import Comparison, Plot, Report, Section
from raysim.reports.formats import fill_template, means_to_csv, runs_to_csv
from raysim.reports.grouping import group_runs
from raysim.reports.latex import escape_latex, fold, split_table
from raysim.reports.quantity_tables import ReportTable, TableCell, tabulate_results
from raysim.reports.reading import find_runs
from raysim.reports.terminal import show_report
from raysim.reports.write import write_report

TABLE = ReportTable(
    "a_b: 50 % & more",
    ["methods", "x_1, %"],
    [[TableCell("der + fed_a_gem"), TableCell("-1.50 ± 0.25", best=True)], [TableCell("a|b"), TableCell("2.00")]],
    "A note on #1.",
)

FACTS = ReportTable("What was run", ("", ""), [[TableCell("tasks"), TableCell("2")]], texts=2)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    make_run(tmp_path / "a", {"seed": 5})
    make_run(tmp_path / "b", {"seed": 6, "methods": {"fedprox": {"mu": 0.1}}, "training.batch_size": 8})
    first, second = group_runs(find_runs([tmp_path], []), [])
    comparison = Comparison("Paper, x", [TABLE], [], ["lr is 0.1, in the paper 0.01"], "Somebody, 2024.")
    sections = [
        Section(
            first,
            FACTS,
            [TABLE, replace(TABLE, texts=2)],
            [comparison],
            [Plot(tmp_path / "plots", "1-x", "What it shows.", 7.2)],
        ),
        Section(second, FACTS, [tabulate_results(second, "domain_il")], [], []),
    ]
    return Report(sections, ["runs/x_y: why *not*"], tmp_path)


def test_markdown_has_tables_plots_commands_and_what_was_left_out(report: Report, tmp_path: Path) -> None:
    text = fill_template("report.md", report)
    lines = text.splitlines()
    assert r"| methods | x\_1, % |" in lines
    assert {"| --- | ---: |", "| --- | --- |"} <= set(lines)
    assert r"| der + fed\_a\_gem | **-1.50 ± 0.25** |" in lines
    assert r"| a\|b | 2.00 |" in lines
    assert "![What it shows.](plots/1-x.svg)" in lines
    assert "- departure: lr is 0.1, in the paper 0.01" in lines
    assert f"    raysim run {tmp_path}/a/config.yaml" in lines
    assert r"- runs/x\_y: why \*not\*" in lines
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):  # every row of a table has as many cells
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in block.splitlines()}) == 1


NASTY = "=x\n\\input{/etc/passwd}\x1b[31m"


def test_a_name_gets_out_of_no_line_and_no_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a newline, a comment of LaTeX's is left; ESC colours a terminal; a spreadsheet computes what begins with =."""
    make_run(tmp_path / "0\nx", name=NASTY)
    show_report(write_report([tmp_path], tmp_path / "out"), Console(width=1000))
    said = {name: (tmp_path / "out" / name).read_text() for name in ("report.tex", "report.md")}
    said["terminal"] = capsys.readouterr().out
    for name, text in said.items():
        assert "input" in text
        assert "\x1b" not in text
        assert not [line for line in text.splitlines() if line.startswith(("\\input", "x/config"))], name
    with (tmp_path / "out" / "report.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["name"], row["domain_il.forgetting"]) == (f"'{NASTY}", "0.20000000000000007")


def test_latex_specials_are_escaped() -> None:
    assert escape_latex(r"\a_b{c}$&#%~^") == (r"\textbackslash{}a\_b\{c\}\$\&\#\%\textasciitilde{}\textasciicircum{}")
    assert escape_latex("-1.50 ± 0.25, p < 0.001") == r"$-$1.50 $\pm$ 0.25, p $<$ 0.001"
    assert escape_latex("non-IID, 1e-05") == "non-IID, 1e-05"  # hyphens stay hyphens


def test_latex_is_balanced_and_every_row_has_as_many_cells(report: Report) -> None:
    text = fill_template("report.tex", report)
    # the overview, that of the settings, two of what was run, and four, of which the results' is in three parts
    assert [text.count(f"\\{word}{{{what}}}") for word in ("begin", "end") for what in ("table", "tabular")] == [10] * 4
    assert text.count(", continued.}") == 2
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 10
    assert r"{\boldmath\bfseries $-$1.50 $\pm$ 0.25} \\" in text
    assert r"\caption{Setting 1: made. a\_b: 50 \% \& more. A note on \#1.}" in text
    assert {"lr", "ll"} <= {*re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)}
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert code.isascii()
    bare = re.sub(r"\\[\\{}$&#%_]", "", code)  # what is left of these characters has its meaning
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[%#_^~]", bare)
    for columns, body in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end", text, re.S):
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(columns)}


def test_latex_is_in_parts_that_fit_a_column() -> None:
    """Of 58 letters the words take 11 (FL + A-GEM | + Fed-A-GEM in two lines), numbers 13 each: three, then two.

    A folded text is as wide as the longer of its lines, which break where they are most alike; words that fit stay.
    """
    assert fold("FL + A-GEM + Fed-A-GEM", "l") == r"\rule{0pt}{6ex}\shortstack[l]{FL + A-GEM\\+ Fed-A-GEM}"
    assert (fold("average accuracy, %"), fold("one_long-word"), fold("a + b")) == (
        r"\rule{0pt}{6ex}\shortstack[r]{average\\accuracy, \%}",
        r"one\_long-word",
        "a + b",
    )
    # 84 letters are three lines of the least width, 32: with 31 there would be four
    long = "local_epochs 1, batch_size 16, optimizer.name sgd, optimizer.lr 0.1, precision full"
    stack = r"local\_epochs 1, batch\_size 16,\\optimizer.name sgd, optimizer.lr\\0.1, precision full"
    assert fold(long, "l") == rf"\rule{{0pt}}{{9ex}}\shortstack[l]{{{stack}}}"
    row = ["FL + A-GEM + Fed-A-GEM", *["60.00 ± 10.00"] * 5]
    table = ReportTable("caption", ["methods", *"abcde"], [[*map(TableCell, row)]])
    parts = [*split_table(table)]
    assert [part.headings for part in parts] == [["methods", "a", "b", "c"], ["methods", "d", "e"]]
    assert [[len(cells) for cells in part.rows] for part in parts] == [[4], [3]]
    (whole,) = split_table(replace(table, texts=6))  # nothing but words
    assert whole.headings == table.headings
    # a row has two lines, and a page fifty
    tall = replace(table, rows=[table.rows[0]] * 26)
    assert [len(part.rows) for part in split_table(tall)] == [25, 25, 1, 1]


def test_csv_has_one_row_per_run_and_numbers_come_back_as_they_were(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text(runs_to_csv(report))
    with path.open(newline="") as file:
        second, first = csv.DictReader(file)
    assert (first["directory"], first["label"], first["seed"]) == (str(tmp_path / "a"), "FedAvg", "5")
    assert (second["setting"], second["training.batch_size"], json.loads(second["methods"])) == (
        "1",
        "8",
        {"fedprox": {"mu": 0.1}},
    )
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    for key in ("seconds", "seconds_per_round", "bytes_up", "bytes_down", "peak_memory_bytes"):
        assert float(first[key]) == summary[key]
    metrics = {key: value for key, value in summary["evaluation"]["domain_il"].items() if key != "accuracy"}
    assert {key: float(first[f"domain_il.{key}"]) for key in metrics} == metrics


def test_what_a_run_does_not_have_is_empty_in_csv(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"scenario.tasks": 1}, {"domain_il": [[0.5]]}, seconds_per_round=None)
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    (row,) = csv.DictReader(runs_to_csv(Report([Section(setting, FACTS, [], [], [])], [], tmp_path)).splitlines())
    assert (row["domain_il.forgetting"], row["seconds_per_round"], row["domain_il.average_accuracy"]) == ("", "", "0.5")


def test_clients_own_accuracies_are_in_csv(tmp_path: Path) -> None:
    over = {"domain_il": {"accuracy": [0.5, None], "mean": 0.5, "worst": 0.25, "std": None}}
    make_run(tmp_path / "a", per_client=over)
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    (row,) = csv.DictReader(runs_to_csv(Report([Section(setting, FACTS, [], [], [])], [], tmp_path)).splitlines())
    assert [row[f"domain_il.clients.{key}"] for key in ("mean", "worst", "std")] == ["0.5", "0.25", ""]


def test_means_have_all_digits(tmp_path: Path) -> None:
    """Accuracies (60 + 70) / 2 and (50 + 70) / 2: mean 62.5, deviation 5 / sqrt 2; fedprox has one seed."""
    for seed, matrix in ((0, [[0.8, 0], [0.6, 0.7]]), (1, [[0.8, 0], [0.5, 0.7]])):
        make_run(tmp_path / str(seed), {"seed": seed}, {"domain_il": matrix})
    make_run(tmp_path / "b", {"methods": {"fedprox": {}}}, {"domain_il": [[0.8, 0], [0.6, 0.7]]})
    (setting,) = group_runs(find_runs([tmp_path], []), [])
    rows = [*csv.DictReader(means_to_csv(Report([Section(setting, FACTS, [], [], [])], [], tmp_path)).splitlines())]
    fedavg, fedprox = rows
    assert (fedavg["methods"], fedavg["seeds"], fedavg["protocol"]) == ("FedAvg", "2", "domain_il")
    assert float(fedavg["average accuracy, %"]) == pytest.approx(62.5)
    assert float(fedavg["average accuracy, %, std"]) == pytest.approx(5 / 2**0.5)
    assert (fedprox["average accuracy, %, std"], fedprox["worst client, %"]) == ("", "")
