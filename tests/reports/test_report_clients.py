"""Plots of clients: what they hold, how well they are served, when they are away, how old their updates are, what their
memories hold.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import hold, make_run, one_scene
from matplotlib.colors import to_hex

from raysim.reports.plots import times
from raysim.reports.plots.clients import draw_clients_accuracies, draw_staleness
from raysim.reports.plots.data import draw_data_distribution
from raysim.reports.plots.memory import draw_memories
from raysim.reports.plots.times import draw_clients_in_time
from raysim.system.colors import COLORS
from raysim.system.errors import ConfigError

ER = {"methods": {"er": {}}}


def texts(axes: Any) -> list[list[str]]:
    """The numbers in a chart of cells, row by row."""
    rows = {}
    for text in axes.texts:
        x, y = text.get_position()
        rows.setdefault(y, {})[x] = text.get_text()
    return [[row[x] for x in sorted(row)] for _, row in sorted(rows.items())]


def test_who_holds_what_is_drawn_as_it_was_recorded(tmp_path: Path) -> None:
    """As many samples of each task at every client say nothing: classes only."""
    hold(make_run(tmp_path / "a"))
    (drawn,) = draw_data_distribution(one_scene(tmp_path))
    assert drawn.stem == "1-who-holds-what"
    assert texts(drawn.figure.axes[0]) == [["1", "", "1", ""], ["2", "", "", ""], ["", "1", "", "1"]]
    assert drawn.caption.startswith("Training samples by client and class, each once over all tasks; seed 0.")


def test_tasks_stand_beside_classes_where_clients_differ_in_them(tmp_path: Path) -> None:
    hold(make_run(tmp_path / "a"), by_task=[[2, 0], [1, 1], [0, 2]])
    (drawn,) = draw_data_distribution(one_scene(tmp_path))
    assert texts(drawn.figure.axes[0]) == [["2", ""], ["1", "1"], ["", "2"]]
    assert len(drawn.figure.axes) == 4  # two panels, two scales


def test_of_very_many_clients_some_are_drawn_and_the_words_say_so(tmp_path: Path) -> None:
    hold(make_run(tmp_path / "a", {"clients.count": 6}, clients=6), clients=[0, 2, 4])
    (drawn,) = draw_data_distribution(one_scene(tmp_path))
    assert [label.get_text() for label in drawn.figure.axes[0].get_yticklabels()] == ["0", "2", "4"]
    assert "of 3 of 6 clients, evenly spaced" in drawn.caption


def test_who_is_at_which_task_is_drawn_where_tasks_do_not_change_at_once(tmp_path: Path) -> None:
    """Four rounds: client 0 goes to task 2 with round 3, client 1 comes with round 2, client 2 leaves with round 4."""
    rounds = [{"round": number} for number in range(1, 5)]
    moves = [[[1, 1], [3, 2]], [[1, 0], [2, 1]], [[1, 1], [4, 0]]]
    hold(make_run(tmp_path / "a", rounds=rounds), at_tasks=moves)
    _, drawn = draw_data_distribution(one_scene(tmp_path))
    assert drawn.stem == "1-clients-at-tasks"
    shown: Any = drawn.figure.axes[0].images[0].get_array()
    assert shown.filled(-1).tolist() == [[0, 0, 1, 1], [-1, 0, 0, 0], [0, 0, 0, -1]]


@pytest.mark.parametrize("content", [None, "{", '{"clients": [0]}'])
def test_a_run_that_did_not_record_it_is_named(content: str | None, tmp_path: Path) -> None:
    directory = make_run(tmp_path / "a")
    if content is not None:
        (directory / "clients.json").write_text(content)
    with pytest.raises(ConfigError, match=r"a/clients\.json: "):
        list(draw_data_distribution(one_scene(tmp_path)))


def served(accuracy: list[float | None]) -> dict[str, Any]:
    return {"per_client": {"domain_il": {"accuracy": accuracy, "mean": None, "worst": None, "std": None}}}


def test_clients_accuracies_are_a_box_and_dots_for_each_method(tmp_path: Path) -> None:
    """10, 20, 30, 40 and 50 over two seeds: quartiles 20 and 40, median 30; one client has no test samples."""
    make_run(tmp_path / "a", **served([0.1, 0.5, 0.3]))
    make_run(tmp_path / "b", {"seed": 1}, **served([0.2, 0.4, None]))
    make_run(tmp_path / "c", ER, **served([0.6, 0.6, 0.6]))
    (drawn,) = draw_clients_accuracies(one_scene(tmp_path))
    (axes,) = drawn.figure.axes
    box, other = axes.patches
    assert (box.get_x(), box.get_width()) == (pytest.approx(20), pytest.approx(20))
    assert other.get_width() == 0
    line, median, dots, *_ = axes.lines
    np.testing.assert_allclose(line.get_xdata(), [10, 50])
    np.testing.assert_allclose(median.get_xdata(), [30, 30])
    np.testing.assert_allclose(dots.get_xdata(), [10, 50, 30, 20, 40])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["FedAvg", "ER"]
    assert [to_hex(patch.get_facecolor()).upper() for patch in (box, other)] == [*COLORS[:2]]
    assert '"FedAvg, client 1, seed 1: 40.0 %"' in dots.get_gid()


def test_without_clients_accuracies_there_is_no_such_plot(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b", ER, **served([0.5]))  # a single client
    assert list(draw_clients_accuracies(one_scene(tmp_path))) == []


def aged(directory: Path, overrides: dict[str, Any], *ages: list[int]) -> None:
    make_run(directory, overrides, rounds=[{"round": k, "staleness": of} for k, of in enumerate(ages, 1)])


def test_staleness_is_a_share_of_updates_alike_for_methods_with_the_same(tmp_path: Path) -> None:
    """Five updates of age 0, 0, 1, 3, 3: 40, 20, 0 and 40 %."""
    aged(tmp_path / "a", {}, [0, 1, 3], [0, 3])
    aged(tmp_path / "b", ER, [0, 0], [1, 3, 3])
    (drawn,) = draw_staleness(one_scene(tmp_path))
    assert [bar.get_height() for bar in drawn.figure.axes[0].patches] == [40, 20, 0, 40]
    assert "all methods alike" in drawn.caption


def test_methods_whose_updates_have_other_ages_have_lines(tmp_path: Path) -> None:
    aged(tmp_path / "a", {}, [0, 1])
    aged(tmp_path / "b", ER, [0, 0, 0, 2])
    (drawn,) = draw_staleness(one_scene(tmp_path))
    first, second = drawn.figure.axes[0].lines
    assert ([*first.get_ydata()], [*second.get_ydata()]) == ([50, 50, 0], [75, 0, 25])
    assert (first.get_color(), second.get_color()) == COLORS[:2]


def test_updates_that_are_never_old_are_not_drawn(tmp_path: Path) -> None:
    aged(tmp_path / "a", {}, [0, 0], [0])
    assert list(draw_staleness(one_scene(tmp_path))) == []


AWAY = [
    {"round": 1, "virtual_time": 2.0, "dispatches": [[4, 0.0, 2.0, "used"], [7, 0.0, 3.0, "dropped"]]},
    {"round": 2, "virtual_time": 4.0, "dispatches": [[4, 2.0, 4.0, "used"], [7, 3.0, 9.0, "unused"]]},
]


def bars_of(figure: Any) -> dict[str, list[tuple[float, float, float]]]:
    """From when to when each bar goes and in which row, by what became of it."""
    return {
        str(shapes.get_label()): [
            (*path.vertices[[0, 2], 0], round(path.vertices[:4, 1].mean())) for path in shapes.get_paths()
        ]
        for shapes in figure.axes[0].collections
        if not str(shapes.get_label()).startswith("_")
    }


def test_clients_in_time_have_a_bar_for_every_dispatch(tmp_path: Path) -> None:
    make_run(tmp_path / "a", ER)
    make_run(tmp_path / "b", rounds=AWAY)
    (drawn,) = draw_clients_in_time(one_scene(tmp_path))
    assert bars_of(drawn.figure) == {
        "its update was used": [(0, 2, 0), (2, 4, 0)],
        "dropped out, never trained": [(0, 3, 1)],
        "unused: the run ended first": [(3, 9, 1)],
    }
    axes = drawn.figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["4", "7"]
    assert axes.get_xlim() == (0, 4)  # the run's end
    assert [segment[0][0] for segment in axes.collections[0].get_segments()] == [2, 4]  # server updates
    assert drawn.caption == "Clients in virtual time: FedAvg, seed 0; grey lines: the server's updates."


def test_of_many_dispatches_the_first_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fourth is sent at 3, so the chart ends there."""
    monkeypatch.setattr(times, "MOST_BARS", 3)
    make_run(tmp_path / "a", rounds=AWAY)
    (drawn,) = draw_clients_in_time(one_scene(tmp_path))
    assert sum(map(len, bars_of(drawn.figure).values())) == 3
    assert drawn.figure.axes[0].get_xlim() == (0, 3)
    assert "the first 3 of 4 seconds" in drawn.caption


def test_without_recorded_dispatches_there_is_no_such_plot(tmp_path: Path) -> None:
    make_run(tmp_path / "a", rounds=[{"round": 1, "virtual_time": 2.0}])
    assert list(draw_clients_in_time(one_scene(tmp_path))) == []


def test_memories_are_drawn_by_class_and_task_once_where_they_are_alike(tmp_path: Path) -> None:
    """Rounds 2 and 4: of task 1 3 and 1 samples of classes 0 and 1; later 2 and 1, and of task 2 1 of class 1."""
    held = [[[3, 1], [0, 0]], [[2, 1], [0, 1]]]
    rounds = [{"round": 1}, {"round": 2, "memory": held[0]}, {"round": 4, "memory": held[1]}]
    make_run(tmp_path / "a", rounds=rounds)
    make_run(tmp_path / "b", ER, rounds=rounds)
    make_run(tmp_path / "c", {"methods": {"der": {}}}, rounds=[rounds[1], {"round": 4, "memory": held[0]}])
    (drawn,) = draw_memories(one_scene(tmp_path))
    shown = {(axes.get_title(loc="left"), axes.get_ylabel()): texts(axes) for axes in drawn.figure.axes if axes.texts}
    assert shown == {
        ("FedAvg, ER", "class"): [["3", "2"], ["1", "2"]],
        ("FedAvg, ER", "task"): [["4", "3"], ["", "1"]],
        ("DER", "class"): [["3", "3"], ["1", "1"]],
        ("DER", "task"): [["4", "4"], ["", ""]],
    }
    assert [label.get_text() for label in drawn.figure.axes[0].get_xticklabels()] == ["2", "4"]


@pytest.mark.parametrize(
    "rounds", [[], [{"round": 2, "memory": [[1, 1]]}], [{"round": k, "memory": [[0, 0]]} for k in (1, 2)]]
)
def test_memories_that_say_nothing_are_not_drawn(rounds: list[dict[str, Any]], tmp_path: Path) -> None:
    make_run(tmp_path / "a", rounds=rounds)
    assert list(draw_memories(one_scene(tmp_path))) == []
