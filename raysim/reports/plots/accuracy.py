"""Plots by task: the accuracy matrices, the average after each task, and what was forgotten of each."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from raysim.evaluation.accuracy_matrix import SEEN
from raysim.reports.plots import style
from raysim.reports.plots.forgetting import draw_forgetting
from raysim.reports.plots.line_labels import LineLabel
from raysim.reports.plots.matrices import draw_matrices
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Array, Drawing
from raysim.system.colors import GREY

MEAN_AND_BAND = "mean over seeds; band: ± one standard deviation."
MOST_BANDS = 4  # of full strength; more hide one another
SIZE = (6.0, 3.9)  # inches, of a chart with labels at its lines


def draw_over_tasks(scene: Scene) -> Iterator[Drawing]:
    """Yield for every protocol the accuracy matrices, the average after each task and the forgetting of each task.

    Class-IL among the seen classes is omitted if it is class-IL in every run.
    """
    for protocol in scene.setting.protocols:
        part = scene.evaluated(protocol)
        setting, evaluations = part.setting, [run.summary.evaluation for run in part.setting.runs]
        if protocol == SEEN and all(one[SEEN]["accuracy"] == one["class_il"]["accuracy"] for one in evaluations):
            continue
        matrices = [
            setting.metric.scale * np.asarray([run.summary.evaluation[protocol]["accuracy"] for run in g.runs])
            for g in setting.groups
        ]
        yield draw_matrices(part, protocol, matrices)
        if setting.in_step and setting.tasks > 1:
            yield _draw_after_each_task(part, protocol, matrices)
            yield draw_forgetting(part, protocol, matrices)


def _draw_after_each_task(scene: Scene, protocol: str, matrices: Sequence[Array]) -> Drawing:
    setting, label = scene.setting, scene.setting.label(protocol)
    tasks = range(1, setting.tasks + 1)
    figure, axes = make_average_chart(scene, protocol, "after task")
    averages = [np.stack([found[:, t - 1, :t].mean(axis=1) for t in tasks], axis=1) for found in matrices]
    draw_averages(axes, scene, protocol, [(np.asarray(tasks), found) for found in averages], "after task")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))  # fits any width
    words = f"Average {setting.metric.name} after each task, {label}: {MEAN_AND_BAND}"
    in_color = scene.highlights(protocol).in_color_with_bounds
    return Drawing(f"{setting.number}-{protocol}-accuracy-after-task", words + in_color, figure)


def make_average_chart(scene: Scene, protocol: str, xlabel: str) -> tuple[Figure, Axes]:
    """Return a figure with an empty chart of the average accuracy over tasks, or of another metric."""
    setting = scene.setting
    tasks, metric = "the tasks so far" if setting.in_step else "all tasks", setting.metric
    figure = style.make_figure(*SIZE)
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=f"average {metric.name} over {tasks}{metric.axis}")
    axes.set_title(setting.label(protocol), loc="left")
    return figure, axes


def draw_averages(axes: Axes, scene: Scene, protocol: str, found: Sequence[tuple[Array, Array]], where: str) -> None:
    """Draw a line for each group from its x [points] and its values [seeds, points]. `where` is as in draw_mean.

    Highlighted lines have their names at their ends.
    """
    highlights = scene.highlights(protocol)
    band = style.BAND if len(highlights.members) <= MOST_BANDS else style.BAND / 2
    for index, (label, look, (x, values)) in enumerate(zip(scene.labels, scene.looks, found, strict=True)):
        shown = index in highlights.members
        if shown:
            style.draw_mean(axes, x, values, label, look, scene.setting.metric, where, band)
        else:
            style.draw_faded(axes, x, values, label, index in highlights.bounds)
        if shown or index in highlights.bounds:
            LineLabel(axes, (float(x[-1]), float(values[:, -1].mean())), label, look["color"] if shown else GREY)
