"""What a paper takes from a report: tables without floats, and figures as wide as its columns."""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from made_runs import make_run
from matplotlib.text import Text

from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.paper_tables import format_gain, format_value, gains_table, main_table
from raysim.reports.plots.paper import COLUMN, PAGE, fit_to_paper, save_for_paper
from raysim.reports.plots.style import make_chart, make_figure, put_legend_below
from raysim.reports.quantity_tables import ACCURACY, TableCell
from raysim.reports.reading import find_runs
from raysim.reports.statistics import PairedDifference
from raysim.reports.write import write_report

EXAMPLE = Path(__file__).parents[2] / "examples" / "paper"
PROX: Mapping[str, object] = {"fedprox": {}}
ROWS: Mapping[str, tuple[Mapping[str, object], Sequence[float], Sequence[float]]] = {
    "FL_1": ({}, (0.50, 0.49, 0.51), (0.40, 0.40, 0.40)),
    "FL_1 + prox": (PROX, (0.60, 0.60, 0.60), (0.43, 0.44, 0.45)),
    "ER, lr=0.1": ({"er": {}}, (0.57, 0.60, 0.54), (0.30, 0.31, 0.32)),
}


def make_sweep(directory: Path) -> list[ExperimentSetting]:
    """Two settings, easy and hard, of three methods and three seeds."""
    lines, chosen = ["name: made", "runs:"], ["chosen:"]
    for number, pace in enumerate(("easy", "hard")):
        for row, (label, (methods, *accuracies)) in enumerate(ROWS.items()):
            for seed, accuracy in enumerate(accuracies[number]):
                folder = f"{pace}-{row}-{seed}"
                given = {"methods": methods, "seed": seed, "training.local_epochs": number + 1}
                make_run(directory / folder, given, {"domain_il": [[0.9, 0.0], [accuracy, accuracy]]})
                name, _, values = label.partition(", ")
                lines.append(f"  {folder}: {{pace: {pace}, methods: '{name}', seed: '{seed}'}}")
                chosen += [f"  {folder}: {values}"] if values else []
    (directory / "sweep.yaml").write_text("\n".join([*lines, *chosen, ""]))
    return group_runs(find_runs([directory], []), [])


def body(tabular: str) -> list[str]:
    lines = [line for line in tabular.splitlines() if not line.startswith("%")]
    assert lines[0].startswith(r"\begin{tabular}")
    assert (lines[1], *lines[-2:]) == (r"\toprule", r"\bottomrule", r"\end{tabular}")
    assert "table}" not in tabular  # no float
    return lines[2:-2]


def test_the_main_table_is_methods_by_settings(tmp_path: Path) -> None:
    """Easy: 50, 60 and 57, of which 50 is significantly below 60 (p 0.0066 with Holm). Hard: 40, 44 and 31.

    44 - 40 is 3, 4, 5, p 0.0202, and 44 - 31 is 13 in each seed, so nothing is left to correct. Ranks are 3, 1, 2 and
    2, 1, 3.
    """
    assert body(main_table(make_sweep(tmp_path))) == [
        r"method & easy & hard & mean rank \\",
        r"\midrule",
        r"FL\_1 & $50.0_{\pm 1.0}^{\dagger}$ & $\underline{40.0}_{\pm 0.0}^{\dagger}$ & $2.5$ \\",
        r"FL\_1 + prox & $\mathbf{60.0}_{\pm 0.0}$ & $\mathbf{44.0}_{\pm 1.0}$ & $1.0$ \\",
        r"ER & $\underline{57.0}_{\pm 3.0}$ & $31.0_{\pm 1.0}^{\dagger}$ & $2.5$ \\",
    ]


def test_the_table_of_gains_has_a_block_for_each_family(tmp_path: Path) -> None:
    """FedProx and ER are added to FedAvg. Easy: + 9, 11, 10 is 10 ± 1 (p 0.0033), ER + 7, 11, 3 (t = 7 / (4 / sqrt 3)).

    Easy's first interval is at 0.05 / 2: 6.2053 / sqrt 3 = 3.58; the second at 0.05: 4.3027 / sqrt 3 * 4 = 9.94.
    Hard: + 3, 4, 5 with p 0.0202 and - 10, 9, 8 with a smaller one, at 0.05 and at 0.05 / 2.
    """
    small, wide = r"{\scriptsize $[", r"]$}"
    assert body(gains_table(make_sweep(tmp_path))) == [
        r" & easy & hard \\",
        r"\midrule",
        r"\multicolumn{3}{l}{\emph{added to FL\_1}} \\",
        rf"FL\_1 + prox & $\mathbf{{+10.0}}$ {small}6.4, 13.6{wide} & $\mathbf{{+4.0}}$ {small}1.5, 6.5{wide} \\",
        rf"ER & $+7.0$ {small}-2.9, 16.9{wide} & $\mathbf{{-9.0}}$ {small}-12.6, -5.4{wide} \\",
    ]


def test_one_setting_has_a_column_for_each_metric(tmp_path: Path) -> None:
    make_sweep(tmp_path)
    for folder in tmp_path.glob("hard-*"):
        shutil.rmtree(folder)
    head, _, first, *_ = body(main_table(group_runs(find_runs([tmp_path], []), [])))
    assert head.count("domain-IL") == 2
    assert first == r"FL\_1 & $50.0_{\pm 1.0}^{\dagger}$ & $40.0_{\pm 1.0}^{\dagger}$ \\"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (TableCell("64.5 ± 6.2"), r"$64.5_{\pm 6.2}$"),
        (TableCell("64.5", best=True), r"$\mathbf{64.5}$"),
        (TableCell("-3.1 ± 0.2 †", second=True), r"$\underline{-3.1}_{\pm 0.2}^{\dagger}$"),
        (TableCell("-"), "-"),
        (TableCell("a_b"), r"a\_b"),
    ],
)
def test_values_are_formulas(cell: TableCell, text: str) -> None:
    assert format_value(cell) == text


def test_a_gain_without_an_interval_is_a_number() -> None:
    assert format_gain(ACCURACY, PairedDifference(2.0, 0.0, 3, None, None)) == r"$\mathbf{+2.00}$"
    assert format_gain(ACCURACY, PairedDifference(2.0, None, 1, None, None)) == "$+2.00$"
    assert format_gain(ACCURACY, None) == "-"


@pytest.mark.parametrize(("before", "least", "after"), [(5.8, 0, COLUMN), (11.2, 0, PAGE), (5.8, 5.8, PAGE)])
def test_figures_are_as_wide_as_a_column_or_a_page(before: float, least: float, after: float, tmp_path: Path) -> None:
    """A point is a 72nd of an inch: 3.25 inches are 234 points, and 6.75 are 486."""
    labels = [f"a method with a long name {number}" for number in range(4)]
    figure, axes = make_chart(labels, "title", "x", "y", before)
    for label in labels:
        axes.plot([0, 1], label=label)
    put_legend_below(figure, axes)
    save_for_paper(figure, tmp_path, "drawn", least)
    points = round(72 * after)
    assert re.search(rb"/MediaBox \[ 0 0 (\d+)", (tmp_path / "drawn.pdf").read_bytes())[1] == str(points).encode()
    assert f'width="{points}pt"' in (tmp_path / "drawn.svg").read_text()
    sizes = {text.get_fontsize() for text in [*axes.get_xticklabels(), *figure.legends[0].get_texts()]}
    assert sizes == {8.0}
    legend = figure.legends[0].get_window_extent()
    assert legend.width <= figure.bbox.width
    assert [text.get_text() for text in figure.legends[0].get_texts()] == labels


def test_long_words_of_an_axis_are_in_two_lines() -> None:
    figure = make_figure(5.8, 3.9)
    figure.add_subplot().set_ylabel("average accuracy over the tasks so far (%)")
    fit_to_paper(figure, COLUMN)
    assert "average accuracy over the\ntasks so far (%)" in [text.get_text() for text in figure.findobj(Text)]


def test_a_figure_of_many_panels_is_for_no_paper(tmp_path: Path) -> None:
    figure = make_figure(8, 8)
    figure.subplots(5, 4)
    save_for_paper(figure, tmp_path, "drawn")
    assert [*tmp_path.iterdir()] == []


def test_every_table_of_the_document_has_a_label(tmp_path: Path) -> None:
    make_sweep(tmp_path / "runs")
    write_report(tmp_path / "runs", tmp_path / "out")
    text = (tmp_path / "out" / "report.tex").read_text()
    labels = re.findall(r"\\label\{(tab:[^}]*)\}", text)
    # of each setting: what was run, its results, what ER adds, and the hyperparameters
    assert labels == ["tab:overview", "tab:settings", *(f"tab:{k}-{table}" for k in (1, 2) for table in (1, 2, 3, 4))]
    assert len(labels) == text.count(r"\caption{") - text.count(", continued.}")
    for file in re.findall(r"\\report/([^}]*)", (EXAMPLE / "paper.tex").read_text()):
        assert (tmp_path / "out" / file).is_file(), f"the example names {file}"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
def test_the_example_compiles_to_two_pages(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "paper.tex", tmp_path)
    make_sweep(tmp_path / "runs")
    write_report(tmp_path / "runs", tmp_path / "report")
    (tmp_path / "all.tex").write_text(
        r"\documentclass[twocolumn]{article}\usepackage{booktabs,graphicx}"
        r"\begin{document}\input{report/report.tex}\end{document}"
    )
    for name in ("all", "paper", "paper"):
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
    assert "(2 pages" in done.stdout
    assert "undefined" not in done.stdout
    assert "Overfull" not in done.stdout
