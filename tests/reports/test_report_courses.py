"""Plots over the course of runs: each task's accuracy, and the average against rounds and what they cost by then."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import OFTEN, make_run, one_scene

from raysim.reports.plots.accuracy_courses import draw_over_rounds
from raysim.reports.plots.style import Drawing


def courses_of(directory: Path) -> dict[str, Drawing]:
    """The plots over the course of a setting's runs, by what accuracy is drawn against."""
    return {one.stem.removeprefix("1-domain_il-accuracy-"): one for one in draw_over_rounds(one_scene(directory))}


def test_the_average_is_drawn_against_rounds_and_what_they_cost_by_then(tmp_path: Path) -> None:
    """A round sends half a MiB up and half a MiB down and takes half a second; in round 3 there are two tasks:
    (60 + 70) / 2.
    """
    make_run(tmp_path / "a", rounds=OFTEN)
    found = courses_of(tmp_path)
    assert [*found] == ["by-task", "rounds", "bytes", "seconds"]
    for axis, x in (("rounds", [1, 2, 3]), ("bytes", [1, 2, 3]), ("seconds", [0.5, 1, 1.5])):
        np.testing.assert_allclose(found[axis].figure.axes[0].lines[0].get_xdata(), x)
        np.testing.assert_allclose(found[axis].figure.axes[0].lines[0].get_ydata(), [50, 80, 65])


def test_each_task_has_a_panel_with_lines_where_tasks_end(tmp_path: Path) -> None:
    """Task 1 ends with round 2 and task 2 with round 3. Seeds 0.5, 0.8, 0.6 and 0.7, 0.8, 0.6 on task 1."""
    make_run(tmp_path / "a", rounds=OFTEN)
    make_run(tmp_path / "b", {"seed": 1}, rounds=[{**OFTEN[0], "evaluation": {"domain_il": [0.7, 0.3]}}, *OFTEN[1:]])
    first, second = courses_of(tmp_path)["by-task"].figure.axes
    for axes, title, own, y in ((first, "task 1", (0, 2), [60, 80, 60]), (second, "task 2", (2, 3), [20, 20, 70])):
        end, line = axes.lines
        assert axes.get_title(loc="left") == title
        assert [*end.get_xdata()] == [2, 2]
        np.testing.assert_allclose(line.get_xdata(), [1, 2, 3])
        np.testing.assert_allclose(line.get_ydata(), y)
        (shaded,) = axes.patches
        assert (shaded.get_x(), shaded.get_x() + shaded.get_width()) == own


def test_of_more_than_four_methods_the_panels_have_no_bands(tmp_path: Path) -> None:
    for number in range(5):
        methods = {} if number == 0 else {"fedprox": {"mu": number}}
        for seed in (0, 1):
            make_run(tmp_path / "runs" / f"{number}-{seed}", {"methods": methods, "seed": seed}, rounds=OFTEN)
    found = courses_of(tmp_path / "runs")
    assert [len(axes.collections) for axes in (*found["by-task"].figure.axes, found["bytes"].figure.axes[0])] == [
        0,
        0,
        5,
    ]
    assert "band" not in found["by-task"].caption
    assert "band" in found["bytes"].caption


def test_of_many_tasks_some_have_a_panel(tmp_path: Path) -> None:
    """Of 19 tasks every second one."""
    matrix = [[0.5] * 19] * 19
    rounds = [{"round": t, "tasks": [t], "evaluation": {"domain_il": [0.5] * 19}} for t in range(1, 20)]
    make_run(tmp_path / "a", {"scenario.tasks": 19}, {"domain_il": matrix}, rounds=rounds)
    panels = courses_of(tmp_path)["by-task"].figure.axes
    assert [axes.get_title(loc="left") for axes in panels] == [f"task {task}" for task in range(1, 20, 2)]


def test_one_evaluation_makes_no_course(tmp_path: Path) -> None:
    make_run(tmp_path / "a", rounds=[{"round": 1}, OFTEN[2]])
    assert courses_of(tmp_path) == {}


def test_evaluations_are_averaged_in_their_order(tmp_path: Path) -> None:
    """Rounds 1, 2, 3 and 2, 4, 6 of two seeds: 1.5, 3, 4.5; accuracies 50, 80, 65 and 70, 80, 65."""
    make_run(tmp_path / "a", rounds=OFTEN)
    later = [{**line, "round": 2 * number} for number, line in enumerate(OFTEN, 1)]
    make_run(tmp_path / "b", {"seed": 1}, rounds=[{**later[0], "evaluation": {"domain_il": [0.7, 0]}}, *later[1:]])
    rounds = courses_of(tmp_path)["rounds"]
    np.testing.assert_allclose(rounds.figure.axes[0].lines[0].get_xdata(), [1.5, 3, 4.5])
    np.testing.assert_allclose(rounds.figure.axes[0].lines[0].get_ydata(), [60, 80, 65])


def test_accuracy_after_tasks_only_is_drawn_against_bytes_and_not_again_against_rounds(tmp_path: Path) -> None:
    make_run(tmp_path / "a", rounds=OFTEN[1:])
    found = courses_of(tmp_path)
    assert [*found] == ["by-task", "bytes", "seconds"]
    np.testing.assert_allclose(found["bytes"].figure.axes[0].lines[0].get_ydata(), [80, 65])


def test_the_tasks_so_far_are_those_that_the_round_says(tmp_path: Path) -> None:
    """A round in which clients are at task 1 again, though two tasks were seen: (50 + 70) / 2, not 50."""
    back = {**OFTEN[-1], "tasks": [1], "so_far": 2, "evaluation": {"domain_il": [0.5, 0.7]}}
    make_run(tmp_path / "a", rounds=[*OFTEN, back])
    rounds = courses_of(tmp_path)["rounds"]
    np.testing.assert_allclose(rounds.figure.axes[0].lines[0].get_ydata(), [50, 80, 65, 60])


@pytest.mark.parametrize(
    "schedule", [{"kind": "asynchronous"}, {"speeds": {"kind": "pareto"}}, {"bandwidth": 1e6}, {}], ids=str
)
def test_virtual_time_is_drawn_where_it_is_not_counting_rounds(schedule: dict[str, Any], tmp_path: Path) -> None:
    rounds = [{**line, "virtual_time": 2.5 * index} for index, line in enumerate(OFTEN[1:])]
    make_run(tmp_path / "a", {"schedule": schedule} if schedule else {}, rounds=rounds)
    assert ("virtual-time" in courses_of(tmp_path)) == bool(schedule)
    if not schedule:
        return
    drawn = courses_of(tmp_path)["virtual-time"]
    np.testing.assert_allclose(drawn.figure.axes[0].lines[0].get_xdata(), [0, 2.5])
    assert drawn.figure.axes[0].get_xlabel() == "virtual time (s)"
