"""How methods look in all settings of a report, and what shows where one hovers over a figure."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from made_runs import make_run, one_scene
from matplotlib.figure import Figure

from raysim.objectives.classification import ACCURACY_METRIC
from raysim.reports.grouping import group_runs
from raysim.reports.plots.accuracy_courses import draw_over_rounds
from raysim.reports.plots.cells import draw_cells
from raysim.reports.plots.scene import set_scenes
from raysim.reports.plots.style import draw_mean, save_drawing, write_svg
from raysim.reports.reading import find_runs

SVG = "{http://www.w3.org/2000/svg}"


def looks(directory: Path) -> list[dict[str, Any]]:
    """The colour of each method, setting by setting."""
    return [
        {group.label: look["color"] for group, look in zip(scene.setting.groups, scene.looks, strict=True)}
        for scene in set_scenes(group_runs(find_runs([directory], []), []))
    ]


def test_a_method_has_one_colour_in_all_settings(tmp_path: Path) -> None:
    """The first setting lacks FedAvg, the second DER; FedProx has another knob in each."""
    made = [({"der": {}}, {"fedprox": {"mu": 0.1}}), ({}, {"fedprox": {"mu": 0.5}})]
    for rounds, methods in enumerate(made, 1):
        for number, of in enumerate(methods):
            make_run(tmp_path / f"{rounds}{number}", {"methods": of, "training.rounds_per_task": rounds})
    first, second = looks(tmp_path)
    assert first["FedProx"] == second["FedProx"]
    assert len({*first.values(), *second.values()}) == 3


def test_knobs_have_colours_of_their_own_where_a_setting_has_several(tmp_path: Path) -> None:
    for mu in (0.1, 0.5):
        make_run(tmp_path / f"one {mu}", {"methods": {"fedprox": {"mu": mu}}})
    make_run(tmp_path / "two", {"methods": {"fedprox": {"mu": 0.5}}, "training.rounds_per_task": 3})
    several, (alone,) = looks(tmp_path)[0], looks(tmp_path)[1].values()
    assert len({*several.values()}) == 2
    assert alone == several["FedProx mu=0.5"]


def test_marks_have_titles_with_their_numbers(tmp_path: Path) -> None:
    """50 and 70 on task 1 after round 1: 60, and a deviation of 20 / sqrt 2 = 14.1."""
    for seed, first in enumerate((0.5, 0.7)):
        rounds = [
            {"round": 1, "evaluation": {"domain_il": [first, 0]}},
            {"round": 2, "evaluation": {"domain_il": [1, 0]}},
        ]
        make_run(tmp_path / f"{seed}", {"seed": seed}, rounds=rounds)
    drawing = next(one for one in draw_over_rounds(one_scene(tmp_path)) if one.stem.endswith("bytes"))
    root = ElementTree.parse(save_drawing(drawing, tmp_path).file).getroot()
    marks = [mark.findtext(f"{SVG}title") for mark in root.iter(f"{SVG}use") if mark.find(f"{SVG}title") is not None]
    assert marks == ["FedAvg: 60.0 ± 14.1 % after MiB 1", "FedAvg: 100.0 ± 0.0 % after MiB 2"]
    assert [group.findtext(f"{SVG}title") for group in root.iter(f"{SVG}g")].count("FedAvg") == 1
    assert not any("hover" in (element.get("id") or "") for element in root.iter())


def test_every_cell_has_its_own_title(tmp_path: Path) -> None:
    """Rows from above, columns from the left: the cells' titles in the order of their corners."""
    figure = Figure()
    axes = figure.add_subplot()
    axes.set(xlabel="class", ylabel="client")
    draw_cells(axes, np.array([[5, 0, 7], [1, 2, 3000]]), [3, 8], range(3), 3000)
    write_svg(figure, tmp_path / "cells.svg")
    cells = [
        (float(path.get("d", "").split()[2]), float(path.get("d", "").split()[1]), path.findtext(f"{SVG}title"))
        for path in ElementTree.parse(tmp_path / "cells.svg").getroot().iter(f"{SVG}path")
        if path.find(f"{SVG}title") is not None
    ]
    rows = sorted({round(y) for y, _, _ in cells})
    found = [[title for y, _, title in sorted(cells, key=lambda cell: cell[1]) if round(y) == row] for row in rows]
    assert found == [
        ["client 3, class 0: 5", "client 3, class 1: 0", "client 3, class 2: 7"],
        ["client 8, class 0: 1", "client 8, class 1: 2", "client 8, class 2: 3,000"],
    ]


def test_very_many_cells_are_one_picture() -> None:
    figure = Figure()
    axes = figure.add_subplot()
    draw_cells(axes, np.ones((200, 100), np.int64), range(200), range(100), 1)
    assert len(axes.images) == 1
    assert not axes.texts


def test_a_label_with_an_underscore_in_front_is_in_the_legend() -> None:
    """matplotlib leaves such labels out, as they are those of unnamed artists."""
    axes = Figure().add_subplot()
    draw_mean(axes, np.arange(2.0), np.zeros((1, 2)), "_Mine", {"color": "red"}, ACCURACY_METRIC, "in round")
    assert axes.get_legend_handles_labels()[1] == [" _Mine"]
