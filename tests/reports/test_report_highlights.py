"""Which methods plots highlight, how methods with components look, and labels in place of a legend."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run, one_scene
from matplotlib.colors import to_hex
from matplotlib.text import Text

from raysim.reports.grouping import group_runs
from raysim.reports.plots.accuracy import draw_over_tasks
from raysim.reports.plots.line_labels import LineLabel, PointLabel, spread_out
from raysim.reports.plots.scene import Scene, set_scenes
from raysim.reports.plots.style import make_figure
from raysim.reports.reading import find_runs
from raysim.system.colors import COLORS, GREY


def make_group(directory: Path, methods: dict[str, Any], average: float, **more: Any) -> None:
    make_run(directory, {"methods": methods, **more}, {"domain_il": [[average, 0], [average, average]]})


def eight(directory: Path, fedavg: float, last: str = "fedprox") -> Scene:
    """FedAvg, and seven others of accuracies 0.1 to 0.7."""
    make_group(directory / "0", {}, fedavg)
    for number in range(1, 7):
        make_group(directory / f"{number}", {"fedprox": {"mu": number}}, number / 10)
    make_group(directory / "7", {last: {"mu": 7} if last == "fedprox" else {}}, 0.7)
    return one_scene(directory)


def chosen(scene: Scene) -> list[str]:
    return [scene.labels[index] for index in sorted(scene.highlights("domain_il").members)]


def test_of_many_methods_the_five_best_and_fedavg_are_in_color(tmp_path: Path) -> None:
    scene = eight(tmp_path, 0.05)
    assert chosen(scene) == ["FedAvg", *(f"FedProx mu={mu}.0" for mu in range(3, 8))]
    _, curve, _ = draw_over_tasks(scene)
    said = "In color: the 5 best of 8 by final average accuracy, and FedAvg; the others are grey."
    assert curve.caption.endswith(said)
    axes = curve.figure.axes[0]
    assert [line.get_color() == GREY for line in axes.lines] == [False, True, True, *5 * [False]]
    assert [text.get_text() for text in axes.texts] == chosen(scene)


def test_fedavg_among_the_best_makes_them_six(tmp_path: Path) -> None:
    """FedAvg is the sixth: 0.7, 0.6, 0.5, 0.4, 0.3, 0.25."""
    scene = eight(tmp_path, 0.25)
    assert chosen(scene) == ["FedAvg", *(f"FedProx mu={mu}.0" for mu in range(3, 8))]
    assert scene.highlights("domain_il").rule == "the 6 best of 8 by final average accuracy"


def test_a_bound_is_not_among_the_best_but_has_a_label(tmp_path: Path) -> None:
    scene = eight(tmp_path, 0.05, "joint")
    assert chosen(scene) == ["FedAvg", *(f"FedProx mu={mu}.0" for mu in range(2, 7))]
    matrices, curve, _ = draw_over_tasks(scene)
    assert curve.caption.endswith(
        "the 5 best of 7 by final average accuracy, and FedAvg; the others are grey, bounds dotted."
    )
    assert "Joint" in [text.get_text() for text in curve.figure.axes[0].texts]
    assert matrices.caption.endswith("Shown: the 5 best of 7 by final average accuracy, and FedAvg.")
    assert len(matrices.figure.axes) == 6 + 1  # and the color bar


def test_few_methods_and_many_bounds_are_not_counted_as_more(tmp_path: Path) -> None:
    for number in range(5):
        make_group(tmp_path / f"{number}", {"fedprox": {"mu": number}} if number else {}, number / 10)
    for name in ("joint", "fixed"):
        make_group(tmp_path / name, {name: {}}, 0.9)
    assert one_scene(tmp_path).highlights("domain_il").rule == "all methods without bounds"


def test_few_methods_are_all_in_color(tmp_path: Path) -> None:
    for number in range(6):
        make_group(tmp_path / f"{number}", {"fedprox": {"mu": number}} if number else {}, number / 10)
    assert chosen(one_scene(tmp_path)) == ["FedAvg", *(f"FedProx mu={mu}.0" for mu in range(1, 6))]
    assert one_scene(tmp_path).highlights("domain_il").in_color == ""


def test_the_color_is_of_the_base_and_the_dash_of_the_component(tmp_path: Path) -> None:
    """Fed-A-GEM always comes after another method: with FedAvg it is a component too."""
    made: list[dict[str, Any]] = [{}, {"fed_a_gem": {}}, {"fedprox": {}}, {"fedprox": {}, "fed_a_gem": {}}]
    for number, methods in enumerate(made):
        make_group(tmp_path / f"{number}", methods, 0.5)
    scene = one_scene(tmp_path)
    looks = dict(zip(scene.labels, scene.looks, strict=True))
    assert looks["Fed-A-GEM"]["color"] == looks["FedAvg"]["color"]
    assert looks["FedProx + Fed-A-GEM"]["color"] == looks["FedProx"]["color"] != looks["FedAvg"]["color"]
    assert looks["FedAvg"]["linestyle"] == looks["FedProx"]["linestyle"] == "-"
    assert looks["Fed-A-GEM"]["linestyle"] == looks["FedProx + Fed-A-GEM"]["linestyle"] != "-"


def test_methods_that_are_highlighted_together_differ_in_color(tmp_path: Path) -> None:
    """Eight methods for seven colors: one setting highlights methods 3 to 7, the other one 5 to 9, and both FedAvg."""
    names = ["fedavgm", "fedadam", "fedyogi", "er", "a_gem", "lwf", "ewc", "der", "fedprox"]
    for rounds in (1, 2):
        ranked = names[:7] if rounds == 1 else names[2:]
        make_group(tmp_path / f"{rounds}", {}, 0.01, **{"training.rounds_per_task": rounds})
        for place, name in enumerate(ranked):
            methods = {name: {}}
            make_group(tmp_path / f"{rounds}-{name}", methods, 0.1 + place / 20, **{"training.rounds_per_task": rounds})
    for scene in set_scenes(group_runs(find_runs([tmp_path], []), [])):
        members = scene.highlights("domain_il").members
        assert len(members) == 6
        assert len({scene.looks[index]["color"] for index in members}) == 6


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ([10, 50], [10, 50]),
        ([10, 10], [8, 12]),
        ([10, 11, 50], [8.5, 12.5, 50]),  # the lower one wants to begin at 8, the upper one would have it at 5
        ([99], [98]),
        ([1, 1, 1], [2, 6, 10]),
        ([99, 99, 50], [94, 98, 50]),
    ],
)
def test_labels_of_height_4_move_apart_and_stay_between_0_and_100(
    wanted: Sequence[float], places: Sequence[float]
) -> None:
    assert spread_out(wanted, [4] * len(wanted), 0, 100) == places


@pytest.mark.parametrize("kind", [LineLabel, PointLabel])
@pytest.mark.parametrize("width", [3.25, 6.75])
def test_labels_do_not_overlap_at_any_width(kind: Any, width: float) -> None:
    figure = make_figure(width, 3)
    axes = figure.add_subplot()
    labels = [kind(axes, (1, y), f"method {y}", COLORS[0]) for y in (5, 5.1, 5.2, 9)]
    axes.set(xlim=(0, 2), ylim=(0, 10))
    figure.draw_without_rendering()
    boxes = sorted((box.y0, box.y1) for box in map(Text.get_window_extent, labels))
    assert all(bottom >= top for (_, top), (bottom, _) in pairwise(boxes))


def test_future_tasks_are_grey(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {}, {"domain_il": [[0.8, 0.2], [0.6, 0.7]]})
    matrix, *_ = draw_over_tasks(one_scene(tmp_path))
    axes = matrix.figure.axes[0]
    values: Any = axes.images[0].get_array()
    assert values.mask.tolist() == [[False, True], [False, False]]
    assert [text.get_text() for text in axes.texts] == ["80", "20", "60", "70"]
    assert [text.get_alpha() for text in axes.texts] == [None, 0.65, None, None]
    assert to_hex(axes.texts[1].get_color()) == "#1a1a1a"
