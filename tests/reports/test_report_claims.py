"""Gains that a paper claims beside measured ones: which are compared, what a test says of each, how they are drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import make_run, one_scene

from raysim.reports.against import compare_with_paper
from raysim.reports.content import Comparison
from raysim.reports.gains import tabulate_gains
from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.plots.compared import draw_compared
from raysim.reports.published import load_paper
from raysim.reports.reading import find_runs
from raysim.reports.write import write_report

ROTATED: dict[str, Any] = {
    "dataset": {"name": "mnist"},
    "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "rotation"},
    "clients": {"count": 10},
    "partition": {"kind": "shards"},
    "model": {"name": "mnist_cnn"},
    "training": {"rounds_per_task": 20},
}
FED: dict[str, Any] = {"fed_a_gem": {}}
DER: dict[str, Any] = {"der": {}}


def made(directory: Path, *rows: tuple[Mapping[str, Any], Sequence[float]]) -> ExperimentSetting:
    """Runs of rotated MNIST: by row the methods, and the last accuracy on both tasks by seed; 0.9 is forgotten from."""
    for number, (methods, accuracies) in enumerate(rows):
        for seed, accuracy in enumerate(accuracies):
            matrix = {"domain_il": [[0.9, 0.1], [accuracy, accuracy]]}
            make_run(directory / f"{number}-{seed}", {**ROTATED, "methods": methods, "seed": seed}, matrix)
    (found,) = group_runs(find_runs([directory], []), [])
    return found


def compared(setting: ExperimentSetting) -> Comparison:
    (found,) = compare_with_paper(load_paper("fed_a_gem"), setting)
    return found


def gains(comparison: Comparison) -> list[tuple[str, ...]]:
    """By row: what gains over what, the published and the measured gain, the seeds and the verdict."""
    tables = [table for table in comparison.tables if ": gains in " in table.caption]
    return [tuple(cell.text for cell in row) for table in tables for row in table.rows]


def test_what_is_claimed_stands_first_with_what_a_test_says_of_it(tmp_path: Path) -> None:
    """Published (Tables 1 and 14): 79.46 - 68.02 = 11.44 and 81.33 - 57.73 = 23.60; forgetting 11.66 - 25.98 = -14.32
    and 5.51 - 21.42 = -15.91. Measured over FL +3, +4, +5: mean 4, half 4.3027 / sqrt 3 = 2.48, p 1 - sqrt(48/50) =
    0.0202, which Holm doubles where DER's is the other of two: 0.0404, with an interval at 0.05 / 2, whose half is
    sqrt(2 * 0.975^2 / (1 - 0.975^2)) / sqrt 3 = 3.58. Over DER -11, -1, +6: mean -2, t = 2 / (8.544 / sqrt 3) =
    0.4054, p = 1 - 0.4054 / sqrt(2.1644) = 0.724. Forgetting falls by as much as accuracy rises.
    """
    setting = made(
        tmp_path,
        ({}, (0.50, 0.50, 0.50)),
        (FED, (0.53, 0.54, 0.55)),
        (DER, (0.60, 0.60, 0.60)),
        ({**DER, **FED}, (0.49, 0.59, 0.66)),
    )
    comparison = compared(setting)
    said = "Of 2 published gains: 1 supported, 0 inconclusive, 1 not supported, 0 reversed."
    fl, der = "+4.00 (+0.42 to +7.58), p 0.040", "-2.00 (-23.22 to +19.22), p 0.724"
    assert gains(comparison) == [
        ("DER + Fed-A-GEM", "DER", "+23.60", der, "3", "not supported"),
        ("Fed-A-GEM", "FedAvg", "+11.44", fl, "3", "supported"),
        ("DER + Fed-A-GEM", "DER", "-15.91", "+2.00 (-19.22 to +23.22), p 0.724", "3", "not supported"),
        ("Fed-A-GEM", "FedAvg", "-14.32", "-4.00 (-7.58 to -0.42), p 0.040", "3", "supported"),
    ]
    assert [(table.caption.partition("Table ")[2], table.verdict) for table in comparison.tables] == [
        ("1: gains in domain-IL average accuracy", said),
        ("14: gains in domain-IL forgetting", said),
        # DER, 57.73 ± 3.6 and 60.00; the next is 14 points off
        ("1: domain-IL average accuracy, published and measured", "1 of 4 levels agree."),
        ("3: domain-IL average accuracy, published and measured", "0 of 1 levels agree."),
        ("14: domain-IL forgetting, published and measured", "0 of 4 levels agree."),
    ]
    assert comparison.tables[0].note.startswith("Measured: the mean of the paired differences, its interval and p")
    assert comparison.tables[0].sentences == [
        (
            "DER + Fed-A-GEM, compared with DER, lowers the average accuracy by 2.00 points (3 seeds): "
            "not significant, p 0.724."
        ),
        "Fed-A-GEM, compared with FedAvg, raises the average accuracy by 4.00 points (3 seeds): significant, p 0.040.",
    ]


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ((0.47, 0.46, 0.45), "reversed"),
        ((0.51, 0.51, 0.51), "supported"),
        ((0.51, 0.51), "inconclusive (2 seeds)"),
        ((0.53,), "inconclusive (1 seed)"),
        ((0.53, 0.49, 0.55), "inconclusive (3 seeds)"),
        ((0.47, 0.51, 0.45), "not supported"),
        ((0.50, 0.50, 0.50), "not supported"),
    ],
    ids=["lower", "same in every seed", "same in two", "one seed", "higher, too few", "lower, too few", "equal"],
)
def test_a_gain_is_supported_reversed_or_open(accuracies: Sequence[float], verdict: str, tmp_path: Path) -> None:
    found = compared(made(tmp_path, ({}, (0.50, 0.50, 0.50)), (FED, accuracies)))
    assert {row[-1] for row in gains(found)} == {verdict}
    assert found.tables[0].verdict.startswith("Of 1 published gain: ")


def test_the_same_gain_has_one_answer_in_all_tables(tmp_path: Path) -> None:
    """FL and DER gain 3, 4, 5 by Fed-A-GEM. The paper's table of 4 has FL's alone, and the report's own table both."""
    rows = [({}, (0.50, 0.50, 0.50)), (FED, (0.53, 0.54, 0.55)), (DER, (0.6, 0.6, 0.6))]
    setting = made(tmp_path, *rows, ({**DER, **FED}, (0.63, 0.64, 0.65)))
    (own,) = [table for table in tabulate_gains(setting, "domain_il") if "what Fed-A-GEM" in table.caption]
    answers = {row[0].text: row[2].text for row in own.rows}
    assert answers == {"FedAvg": "+4.00 (+0.42 to +7.58), p 0.040", "DER": "+4.00 (+0.42 to +7.58), p 0.040"}
    claimed = [row for row in gains(compared(setting)) if row[3].startswith("+")]
    assert len(claimed) == 2
    assert all(row[3] == answers[row[1]] for row in claimed)


def test_what_differs_in_another_knob_too_is_no_gain_of_the_method(tmp_path: Path) -> None:
    """Fed-A-GEM with DER of alpha 1 gains over that DER, not over that of alpha 0.5; nothing is claimed of FedProx."""
    setting = made(
        tmp_path,
        ({"der": {"alpha": 0.5}}, (0.5, 0.6)),
        ({"der": {"alpha": 1.0}}, (0.5, 0.6)),
        ({"der": {"alpha": 1.0}, **FED}, (0.6, 0.8)),
        ({"fedprox": {}}, (0.5, 0.6)),
    )
    pairs = {row[:2] for row in gains(compared(setting))}
    assert pairs == {("DER alpha=1.0 + Fed-A-GEM", "DER alpha=1.0")}


def test_without_both_ends_there_are_levels_only(tmp_path: Path) -> None:
    found = compared(made(tmp_path, ({}, (0.5, 0.6)), (DER, (0.5, 0.6))))
    assert gains(found) == []
    assert [table.caption.partition(": ")[2].partition(",")[0] for table in found.tables] == [
        "domain-IL average accuracy",
        "domain-IL forgetting",
    ]


def test_published_is_drawn_against_measured_within_what_can_be(tmp_path: Path) -> None:
    """A panel for each metric, gains above levels; FL at 68.02 ± 3.1 and 80 with its deviation cut at 100."""
    setting = made(tmp_path, ({}, (0.52, 0.98, 0.90)), (FED, (0.60, 0.99, 0.99)))
    drawing = draw_compared(one_scene(tmp_path), compared(setting), 1)
    assert drawing.stem == "1-against-paper-1"
    panels = {axes.get_title(loc="left").replace("\n", " "): axes for axes in drawing.figure.axes}
    assert list(panels) == [
        f"{kind}: domain-IL {metric}" for kind in ("gains", "levels") for metric in ("average accuracy", "forgetting")
    ]
    levels = panels["levels: domain-IL average accuracy"].containers
    (points, _, (across, up)), *_ = levels
    np.testing.assert_allclose([*points.get_xdata(), *points.get_ydata()], [68.02, 80.0])
    np.testing.assert_allclose(across.get_segments()[0][:, 0], [68.02 - 3.1, 68.02 + 3.1])
    assert up.get_segments()[0][1, 1] == 100
    gained = panels["gains: domain-IL average accuracy"].containers
    np.testing.assert_allclose(gained[0].lines[0].get_xdata(orig=False), [79.46 - 68.02])
    assert [text.get_text() for text in drawing.figure.legends[0].get_texts()] == ["FedAvg", "Fed-A-GEM"]


def test_many_metrics_are_three_panels_wide(tmp_path: Path) -> None:
    """Six metrics of gains in two rows, and six of levels in two more, in the places of a reader's eye."""
    setting = made(tmp_path, ({}, (0.52, 0.98)), (FED, (0.60, 0.99)))
    found = compared(setting)
    pairs = [replace(pair, metric=f"{pair.metric} {number}") for number in range(3) for pair in found.pairs]
    drawing = draw_compared(one_scene(tmp_path), replace(found, pairs=pairs), 1)
    places = [axes.get_subplotspec().num1 for axes in drawing.figure.axes]
    assert places == [*range(12)]
    assert drawing.figure.axes[0].get_gridspec().get_geometry() == (4, 3)
    assert drawing.figure.get_size_inches()[0] <= 10


def test_the_claim_is_what_every_document_begins_with(tmp_path: Path) -> None:
    """Its verdict is on the page's first screen, and its tables come before the results."""
    made(tmp_path / "runs", ({}, (0.50, 0.50)), (FED, (0.53, 0.55)))
    report = write_report([tmp_path / "runs"], tmp_path / "out", "fed_a_gem")
    assert [plot.stem for plot in report.sections[0].comparisons[0].plots] == ["1-against-paper-1"]
    for name in ("report.html", "report.md", "report.tex"):
        text = (tmp_path / "out" / name).read_text().replace("\\-", "-")
        claim = ("gains in domain-IL average accuracy", "accuracy, published and measured")
        parts = (*claim, "mean ± ", "an added method")
        places = [text.replace(r"$\pm$", "±").index(part) for part in parts]
        assert places == sorted(places), name
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("gains in domain-IL average accuracy: Of 1 published gain: ") < page.index("<table")
    assert page.count('aria-label="Fed-A-GEM, rotated-MNIST, published and measured: gains') == 2  # its box and itself
