"""Which plots a setting gets, what their numbers are, and what is said where one cannot be drawn."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from made_runs import OFTEN, make_run, one_scene
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from written_report import Written

from raysim.config.yaml_text import to_yaml
from raysim.objectives import Metric
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.reports.plots.accuracy import draw_over_tasks
from raysim.reports.plots.accuracy_courses import draw_over_rounds
from raysim.reports.plots.paper import save_for_paper
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import STYLE, choose_look, choose_ticks, make_figure, range_of, spread, write_svg
from raysim.reports.plots.tradeoffs import draw_tradeoffs
from raysim.reports.write import draw_plots, draw_setting


def axes_of(figure: Figure) -> Axes:
    return figure.axes[0]


def test_every_figure_is_a_file(written: Written) -> None:
    plots = [plot for section in written.report.sections for plot in section.plots]
    assert [plot.stem for plot in plots] == [
        "1-domain_il-accuracy-matrix",
        "1-domain_il-accuracy-after-task",
        "1-domain_il-forgetting",
        "1-domain_il-accuracy-by-task",
        "1-domain_il-accuracy-rounds",
        "1-domain_il-accuracy-bytes",
        "1-domain_il-accuracy-seconds",
        "1-who-holds-what",
    ]
    plots += [section.stream for section in written.report.sections if section.stream]
    assert sorted(path.name for path in (written.out / "plots").iterdir()) == sorted(plot.file.name for plot in plots)
    for plot in plots:
        assert ElementTree.parse(written.out / "plots" / plot.file.name).getroot().tag.endswith("svg")
        assert plot.caption.endswith(".")


def test_curves_show_means_and_bands_over_seeds(tmp_path: Path) -> None:
    """After task 1: 80 and 60, mean 70; after task 2: (60 + 70)/2 = 65 and (40 + 50)/2 = 45, mean 55.

    The deviations of two values are their distance over sqrt 2: 20 / sqrt 2.
    """
    make_run(tmp_path / "a", {"seed": 0}, {"domain_il": [[0.8, 0.2], [0.6, 0.7]]})
    make_run(tmp_path / "b", {"seed": 1}, {"domain_il": [[0.6, 0.2], [0.4, 0.5]]})
    matrix, curve, forgetting = draw_over_tasks(one_scene(tmp_path))
    (line,) = axes_of(curve.figure).lines
    np.testing.assert_allclose(line.get_ydata(), [70, 55])
    (band,) = axes_of(curve.figure).collections
    corners: Any = band.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(70 + 20 / np.sqrt(2))
    assert corners[:, 1].min() == pytest.approx(55 - 20 / np.sqrt(2))
    assert [text.get_text() for text in axes_of(matrix.figure).texts] == ["70", "20", "50", "60"]
    assert [text.get_text() for text in axes_of(forgetting.figure).texts] == ["20", "20"]  # of task 1, and the mean
    assert axes_of(curve.figure).get_ylabel() == "average accuracy over the tasks so far (%)"


def test_bands_and_bars_end_where_the_metric_does(tmp_path: Path) -> None:
    """100 and 60: mean 80, deviation 40 / sqrt 2 = 28.3, so the band would end at 108."""
    make_run(tmp_path / "a", {"seed": 0}, {"domain_il": [[1.0, 0.0], [0.0, 1.0]]})
    make_run(tmp_path / "b", {"seed": 1}, {"domain_il": [[0.6, 0.0], [0.0, 0.6]]})
    _, curve, _ = draw_over_tasks(one_scene(tmp_path))
    (band,) = axes_of(curve.figure).collections
    corners: Any = band.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(100)
    assert corners[:, 1].min() == pytest.approx(40 - 20 / np.sqrt(2))  # after task 2: 50 and 30


def test_what_a_metric_can_be_at_all() -> None:
    """Fractions in %; perplexity starts at 1 and has no largest value."""
    error = Metric("perplexity", higher_is_better=False, range=(1.0, None))
    assert [range_of(ACCURACY_METRIC), range_of(error)] == [(0, 100), (1, None)]
    assert spread(np.array([[0.9, 0.5], [0.7, 0.5]]), (None, 0.85)).tolist() == [
        [pytest.approx(0.8 - 0.1 * np.sqrt(2)), 0.5],
        [0.85, 0.5],
    ]


def test_a_task_that_got_better_at_last_has_been_forgotten_by_less_than_nothing(tmp_path: Path) -> None:
    """60 before the last task, 80 after it: -20, as the best is taken of the rows before the last."""
    make_run(tmp_path / "a", {}, {"domain_il": [[0.6, 0.2], [0.8, 0.7]]})
    *_, forgetting = draw_over_tasks(one_scene(tmp_path))
    of_task, mean = axes_of(forgetting.figure).collections
    np.testing.assert_allclose([of_task.get_array(), mean.get_array()], [[[-20]], [[-20]]])


def test_forgetting_is_a_row_for_each_method_from_the_least_on(tmp_path: Path) -> None:
    """Of tasks 1 and 2 with FedAvg: 80 to 20 and 70 to 60, so 60 and 10, 35 on average; with ER 10 and 20, so 15."""
    make_run(tmp_path / "a", {"scenario.tasks": 3}, {"domain_il": [[0.8, 0, 0], [0.5, 0.7, 0], [0.2, 0.6, 0.5]]})
    er = {"scenario.tasks": 3, "methods": {"er": {}}}
    make_run(tmp_path / "b", er, {"domain_il": [[0.8, 0, 0], [0.7, 0.8, 0], [0.7, 0.6, 0.5]]})
    *_, forgetting = draw_over_tasks(one_scene(tmp_path))
    axes = axes_of(forgetting.figure)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["ER", "FedAvg"]
    of_tasks, mean = axes.collections
    np.testing.assert_allclose(of_tasks.get_array(), [[10, 20], [60, 10]])
    np.testing.assert_allclose(mean.get_array(), [[15], [35]])
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "mean"]


def test_one_task_has_a_matrix_only(tmp_path: Path) -> None:
    make_run(tmp_path / "a", {"scenario.tasks": 1}, {"domain_il": [[0.5]]})
    assert [drawn.stem for drawn in draw_over_tasks(one_scene(tmp_path))] == ["1-domain_il-accuracy-matrix"]


UNDEFINED = {"forgetting": None, "final_forgetting": None, "backward_transfer": None, "forward_transfer": None}


def out_of_step(directory: Path) -> Scene:
    """A run under asynchronous boundaries, where rows are parts of the run and only the accuracies are defined."""
    matrix = [[0.8, 0.2], [0.6, 0.7]]
    overrides = {
        "scenario": {"kind": "class_incremental", "tasks": 2, "boundaries": {"asynchronous": {"window": 6}}},
        "training": {"batch_size": 4},
    }
    values = {"accuracy": matrix, "average_accuracy": 0.65, **UNDEFINED}
    make_run(directory / "a", overrides, rounds=OFTEN[1:], evaluation={"domain_il": values})
    return one_scene(directory)


def test_the_second_reading_of_class_il_is_drawn_by_task_if_it_differs(tmp_path: Path) -> None:
    classes = {"scenario": {"kind": "class_incremental", "tasks": 2}}
    by_class, seen = [[0.6, 0.0], [0.5, 0.6]], [[0.7, 0.0], [0.5, 0.6]]
    make_run(tmp_path / "a" / "run", classes, {"class_il": by_class, "class_il_seen": by_class})
    make_run(tmp_path / "b" / "run", classes, {"class_il": by_class, "class_il_seen": seen})
    same, other = ([drawn.stem for drawn in draw_over_tasks(one_scene(tmp_path / name))] for name in "ab")
    assert same == [f"1-class_il-{what}" for what in ("accuracy-matrix", "accuracy-after-task", "forgetting")]
    assert other == [*same, *(stem.replace("class_il", "class_il_seen") for stem in same)]


def test_out_of_step_there_is_accuracy_over_all_tasks_and_no_forgetting(tmp_path: Path) -> None:
    """After rounds 2 and 3: (80 + 20) / 2 and (60 + 70) / 2, though only one task was seen by round 2."""
    scene = out_of_step(tmp_path)
    assert [drawn.stem for drawn in draw_over_tasks(scene)] == ["1-domain_il-accuracy-matrix"]
    assert list(draw_tradeoffs(scene)) == []
    by_task, rounds, *_ = draw_over_rounds(scene)
    assert [len(axes.lines) for axes in by_task.figure.axes] == [1, 1]  # no task ends for all
    np.testing.assert_allclose(axes_of(rounds.figure).lines[0].get_ydata(), [50, 65])
    assert axes_of(rounds.figure).get_ylabel() == "average accuracy over all tasks (%)"


def test_a_swept_knob_is_drawn_and_two_are_not(tmp_path: Path) -> None:
    """Accuracy 65 and backward transfer -20 at lam 0.1; 80 and -10 at lam 0.5. The third group differs in two knobs."""
    for lam, rate, matrix in (
        (0.5, 1.0, [[0.9, 0], [0.8, 0.8]]),
        (0.1, 1.0, [[0.8, 0], [0.6, 0.7]]),
        (0.3, 0.5, [[0.8, 0], [0.6, 0.7]]),
    ):
        make_run(
            tmp_path / f"{lam}", {"methods": {"special": {"lam": lam, "global_rate": rate}}}, {"domain_il": matrix}
        )
    (drawn,) = draw_tradeoffs(one_scene(tmp_path))
    points: Any = axes_of(drawn.figure).collections[0].get_offsets()
    np.testing.assert_allclose(points, [[65, -20], [80, -10]])
    assert [text.get_text() for text in axes_of(drawn.figure).texts] == ["0.1", "0.5"]
    assert drawn.stem == "1-domain_il-tradeoff-special-lam-of-special"


def test_groups_with_equal_hyperparameters_are_no_sweep_of_one(tmp_path: Path) -> None:
    """Two rows of a sweep, one with clipped gradients."""
    (tmp_path / "sweep.yaml").write_text("name: s\nruns: {plain: {methods: plain}, clipped: {methods: clipped}}\n")
    for name, clip in (("plain", None), ("clipped", 1.0)):
        make_run(tmp_path / name, {"methods": {"special": {"lam": 0.1}}, "training.clip_norm": clip})
    assert list(draw_tradeoffs(one_scene(tmp_path))) == []


def test_sweeps_of_one_knob_at_several_others_share_a_plot(tmp_path: Path) -> None:
    for lam in (0.1, 0.5):
        for rate in (0.5, 1.0):
            make_run(tmp_path / f"{lam}-{rate}", {"methods": {"special": {"lam": lam, "global_rate": rate}}})
    drawn = list(draw_tradeoffs(one_scene(tmp_path)))
    assert [one.stem.partition("-tradeoff-")[2] for one in drawn] == [
        "special-lam-of-special",
        "special-global_rate-of-special",
    ]
    labels = [text.get_text() for text in drawn[0].figure.legends[0].get_texts()]
    assert labels == ["SPECIAL global_rate=0.5", "SPECIAL global_rate=1.0"]


def test_plots_that_cannot_be_drawn_are_left_out_with_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysim.reports.write._save", lambda drawing, folder: drawing)
    (make_run(tmp_path / "runs" / "a") / "rounds.jsonl").write_text('{"round": 1}\n')
    plots, left_out = draw_plots(one_scene(tmp_path / "runs"), tmp_path)
    assert [plot.stem for plot in plots][-1] == "1-domain_il-forgetting"
    rounds, holdings = left_out
    assert rounds.startswith(f"setting 1: plots over rounds: {tmp_path}/runs/a/rounds.jsonl:1: tasks: ")
    assert holdings.startswith(f"setting 1: who holds what: {tmp_path}/runs/a/clients.json: not recorded")


def test_older_runs_without_the_seen_classes_are_in_the_same_plots(tmp_path: Path) -> None:
    """EWC lacks one protocol, and FedProx has class-IL alone. Each protocol has all rows that were evaluated by it."""
    matrix = ((0.8, 0.2), (0.6, 0.7))
    protocols = ("class_il", "class_il_seen", "task_il")
    for number, (methods, known) in enumerate(
        [
            ({}, protocols),
            ({"er": {}}, protocols),
            ({"ewc": {}}, (*protocols[:1], *protocols[2:])),
            ({"fedprox": {}}, protocols[:1]),
        ]
    ):
        given = {"methods": methods, "scenario": {"kind": "class_incremental", "tasks": 2}}
        make_run(tmp_path / str(number), given, dict.fromkeys(known, matrix))
    (tmp_path / "sweep.yaml").write_text(
        to_yaml({"name": "old", "runs": {str(number): {"methods": str(number)} for number in range(4)}})
    )
    left_out: list[str] = []
    drawings = {drawing.stem: drawing for drawing in draw_setting(one_scene(tmp_path), left_out)}
    drawn = [drawings[f"1-{protocol}-accuracy-after-task"] for protocol in ("class_il", "task_il")]
    assert [len(one.figure.axes[0].get_lines()) for one in drawn] == [4, 3]
    assert not any(stem.endswith("-2") for stem in drawings)


def test_a_dollar_in_a_name_is_no_formula(tmp_path: Path) -> None:
    """Matplotlib would refuse the formula between the two."""
    with rc_context(STYLE):
        figure = make_figure(2, 2)
        figure.add_subplot().set_title("a$x^$b")
        write_svg(figure, tmp_path / "dollar.svg")
    assert "a$x^$b" in (tmp_path / "dollar.svg").read_text()


def test_letters_that_the_font_lacks_are_no_warning(tmp_path: Path) -> None:
    """`filterwarnings = error` makes matplotlib's an error. The SVG has the letters as text."""
    with rc_context(STYLE):
        figure = make_figure(2, 2)
        figure.add_subplot().set_title("中文")
        write_svg(figure, tmp_path / "screen.svg")
        save_for_paper(figure, tmp_path, "paper")
    assert all("中文" in (tmp_path / f"{stem}.svg").read_text(encoding="utf-8") for stem in ("screen", "paper"))


def test_no_two_groups_look_alike() -> None:
    found = [tuple(choose_look(number).values()) for number in range(40)]
    assert len(set(found)) == len(found)
    assert len({(colour, marker) for colour, marker, _ in found}) == len(found)


def test_ticks_are_whole_numbers_and_few() -> None:
    assert [*choose_ticks(5)] == [1, 2, 3, 4, 5]
    assert [*choose_ticks(30)] == [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]
