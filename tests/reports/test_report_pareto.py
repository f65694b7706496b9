"""Pareto fronts: which methods are on them, and when they are drawn."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from made_runs import make_run, one_scene

from raysim.reports.costs import Point, find_front, tabulate_budgets
from raysim.reports.plots.pareto import draw_pareto
from raysim.reports.write import write_report


def front_of(points: list[tuple[float, float]], higher_is_better: bool = True) -> list[tuple[float, float]]:
    found = find_front([Point(index, *point) for index, point in enumerate(points)], higher_is_better)
    return [(point.cost, point.average) for point in found]


def test_a_method_on_the_front_has_no_rival_that_is_better_and_costs_no_more() -> None:
    """(2, 55) and (3, 60) are beaten by (2, 60), and (5, 40) by all that are better."""
    assert front_of([(4, 70), (1, 50), (2, 60), (2, 55), (3, 60), (5, 40)]) == [(1, 50), (2, 60), (4, 70)]


def test_of_an_error_less_is_better() -> None:
    assert front_of([(1, 5), (2, 4), (3, 4.5)], higher_is_better=False) == [(1, 5), (2, 4)]


def test_equal_methods_are_both_on_the_front() -> None:
    assert front_of([(1, 5), (1, 5)]) == [(1, 5), (1, 5)]


def make_costly(directory: Path, methods: dict[str, Any], average: float, mebibytes: float, **more: Any) -> None:
    """A run that sends so much up, and three MiB down."""
    matrices = {"domain_il": [[average, 0], [average, average]]}
    make_run(
        directory / ("-".join(methods) or "fedavg"),
        {"methods": methods},
        matrices,
        bytes_up=int(mebibytes * 2**20),
        **more,
    )


def test_the_front_is_a_line_without_bounds(tmp_path: Path) -> None:
    """Costs 4, 5, 6 and 4 MiB. FedAvg and ER are on the front: FedProx costs more than ER, and Joint is a bound."""
    make_costly(tmp_path, {}, 0.5, 1, steps=100)
    make_costly(tmp_path, {"er": {}}, 0.8, 2, steps=200)
    make_costly(tmp_path, {"fedprox": {}}, 0.7, 3, steps=100)
    make_costly(tmp_path, {"joint": {}}, 0.9, 1, steps=300)
    sent, steps = draw_pareto(one_scene(tmp_path))
    assert [sent.stem, steps.stem] == ["1-domain_il-pareto-bytes", "1-domain_il-pareto-steps"]
    front, *marks = sent.figure.axes[0].lines
    np.testing.assert_allclose(front.get_xydata(), [[4, 50], [5, 80], [6, 80]])  # to the costliest
    assert [[*mark.get_xydata()[0]] for mark in marks] == [[4, 50], [5, 80], [6, 70], [4, 90]]
    np.testing.assert_allclose(steps.figure.axes[0].lines[0].get_xydata(), [[100, 70], [200, 80], [300, 80]])
    assert "Bounds are crosses and not on it." in sent.caption


def test_a_table_has_both_costs_and_fronts_for_the_filter_of_the_page(tmp_path: Path) -> None:
    """The same runs. FedProx is better than FedAvg with as few steps, so FedAvg is on the front of bytes only."""
    make_costly(tmp_path, {}, 0.5, 1, steps=100)
    make_costly(tmp_path, {"er": {}}, 0.8, 2, steps=200)
    make_costly(tmp_path, {"fedprox": {}}, 0.7, 3, steps=100)
    make_costly(tmp_path, {"joint": {}}, 0.9, 1, steps=300)
    found = tabulate_budgets(one_scene(tmp_path).setting, "domain_il")
    assert found is not None
    assert found.headings[2:4] == ("sent, MiB", "gradient steps")
    assert [[cell.text for cell in row] for row in found.rows] == [
        ["ER", "80.00", "5.00", "200", "bytes and steps"],
        ["FedProx", "70.00", "6.00", "100", "steps"],
        ["FedAvg", "50.00", "4.00", "100", "bytes"],
    ]
    script = files("raysim.reports").joinpath("templates", "budget.js").read_text()
    assert all(f'"{heading}":' in script for heading in found.headings[2:4])
    write_report([tmp_path], tmp_path / "report")
    assert script.strip() in (tmp_path / "report/report.html").read_text()


def test_methods_that_cost_the_same_or_recorded_nothing_make_no_front(tmp_path: Path) -> None:
    """Bytes within 2%; steps of two methods only."""
    make_costly(tmp_path, {}, 0.5, 97, steps=100)
    make_costly(tmp_path, {"er": {}}, 0.8, 98, steps=200)
    make_costly(tmp_path, {"fedprox": {}}, 0.7, 98)
    assert [*draw_pareto(one_scene(tmp_path))] == []
