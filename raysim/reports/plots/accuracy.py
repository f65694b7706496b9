"""Plots by task: the accuracy matrices, the accuracy after each task, what was forgotten of each."""

import math
from collections.abc import Iterator, Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from raysim.evaluation.metrics import SEEN
from raysim.records.figures import draw_matrix, number_columns, number_rows
from raysim.reports.colors import FAINT
from raysim.reports.plots import style
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Array, Drawing

LESS_IS_BETTER = "its final {} less the best one before the last task"
MEAN_AND_BAND = "mean over seeds; band: ± one standard deviation."


def draw_over_tasks(scene: Scene) -> Iterator[Drawing]:
    """Yield for every protocol the accuracy matrices, the accuracy after each task and the forgetting of each task.

    Class-IL among the seen classes is omitted if it is class-IL in every run.
    """
    setting = scene.setting
    evaluations = [run.summary.evaluation for run in setting.runs]
    for protocol in setting.protocols:
        if protocol == SEEN and all(one[SEEN]["accuracy"] == one["class_il"]["accuracy"] for one in evaluations):
            continue
        matrices = [
            setting.metric.scale * np.asarray([run.summary.evaluation[protocol]["accuracy"] for run in g.runs])
            for g in setting.groups
        ]
        yield _draw_matrices(scene, protocol, matrices)
        if setting.in_step and setting.tasks > 1:
            yield _draw_after_each_task(scene, protocol, matrices)
            yield _draw_forgetting(scene, protocol, matrices)


def _draw_matrices(scene: Scene, protocol: str, matrices: Sequence[Array]) -> Drawing:
    setting, label = scene.setting, scene.setting.label(protocol)
    tasks, count, metric = setting.tasks, len(setting.groups), setting.metric
    columns = min(count, 2 if tasks > 5 else 3)
    rows = math.ceil(count / columns)
    width, height = 1.2 + 0.42 * tasks, max(1.2 + 0.32 * tasks, 2.4)
    figure = style.make_figure(max(columns * width + 0.8, 4.5), rows * height)
    for index, (group, found) in enumerate(zip(setting.groups, matrices, strict=True), 1):
        axes = figure.add_subplot(rows, columns, index)
        image = draw_matrix(axes, (found.mean(axis=0) / metric.scale).tolist(), metric)
        if index % columns == 1 or columns == 1:
            number_rows(axes, tasks, setting.in_step)
        if index > count - columns:
            number_columns(axes, tasks)
        axes.grid(False)
        for number in axes.texts:
            number.set_in_layout(False)  # those within the axes; there are many
        axes.set_title(fill(group.label, max(12, int((width - 0.5) / 0.1))))
    figure.colorbar(image, ax=figure.axes, label=f"{metric.name}{metric.axis}", shrink=0.6)
    moment = "after task t" if setting.in_step else f"after t of {tasks} equal parts of the run"
    name = f"{metric.name[0].upper()}{metric.name[1:]}"
    words = f"{name} matrices, {label}: mean over seeds; row t is {moment}, column i task i."
    return Drawing(f"{setting.number}-{protocol}-accuracy-matrix", words, figure)


def _draw_after_each_task(scene: Scene, protocol: str, matrices: Sequence[Array]) -> Drawing:
    setting, label = scene.setting, scene.setting.label(protocol)
    tasks = range(1, setting.tasks + 1)
    figure, axes = make_average_chart(scene, protocol, "after task")
    for group, look, found in zip(setting.groups, scene.looks, matrices, strict=True):
        values = np.stack([found[:, t - 1, :t].mean(axis=1) for t in tasks], axis=1)
        style.draw_mean(axes, np.asarray(tasks), values, group.label, look, setting.metric, "after task")
    style.put_legend_below(figure, axes)
    axes.set_xticks(style.choose_ticks(setting.tasks))
    words = f"Average {setting.metric.name} after each task, {label}: {MEAN_AND_BAND}"
    return Drawing(f"{setting.number}-{protocol}-accuracy-after-task", words, figure)


def make_average_chart(scene: Scene, protocol: str, xlabel: str) -> tuple[Figure, Axes]:
    """Return a figure with an empty chart of the average accuracy over tasks, or of another metric."""
    setting = scene.setting
    tasks, metric = "the tasks so far" if setting.in_step else "all tasks", setting.metric
    ylabel = f"average {metric.name} over {tasks}{metric.axis}"
    return style.make_chart([group.label for group in setting.groups], setting.label(protocol), xlabel, ylabel)


def _draw_forgetting(scene: Scene, protocol: str, matrices: Sequence[Array]) -> Drawing:
    setting, label = scene.setting, scene.setting.label(protocol)
    tasks, count, metric = setting.tasks, len(matrices), setting.metric
    labels = [group.label for group in setting.groups]
    figure, axes = style.make_chart(labels, label, "task", f"forgetting{metric.axis}", max(5.8, 0.14 * count * tasks))
    for index, (name, found, look) in enumerate(zip(labels, matrices, scene.looks, strict=True)):
        upward = found if metric.higher_is_better else -found
        lost = upward[:, :-1, :-1].max(axis=1) - upward[:, -1, :-1]
        x = np.arange(1, tasks) + 0.7 * ((index + 0.5) / count - 0.5)  # side by side, so that none hides another
        mean = lost.mean(axis=0)
        ends = None if len(lost) == 1 else np.abs(style.spread(lost, style.range_of(metric, change=True)) - mean)
        bars = axes.errorbar(x, mean, ends, label=name, elinewidth=1, markersize=7, **look | {"linestyle": "none"})
        said = [f"{name}: {style.describe_seeds(lost[:, k], metric)} of task {k + 1}" for k in range(tasks - 1)]
        style.put_titles(bars.lines[0], name, said)
    for edge in np.arange(1.5, tasks - 1):
        axes.axvline(edge, color=FAINT, linewidth=0.6, zorder=0)
    axes.axhline(0, color="#888888", linewidth=0.8)
    axes.grid(False, axis="x")
    axes.set_xticks(style.choose_ticks(tasks - 1))
    style.put_legend_below(figure, axes)
    less = "its best {} before the last task less the final one" if metric.higher_is_better else LESS_IS_BETTER
    words = f"Forgetting of each task but the last, {label}: {less.format(metric.name)}"
    return Drawing(
        f"{setting.number}-{protocol}-forgetting",
        f"{words}; mean over seeds, bars: ± one standard deviation.",
        figure,
    )
