"""Plots with one value per task: the accuracy matrices, the accuracy after each task, the forgetting of each task."""

from __future__ import annotations

import math
from collections.abc import Iterator
from textwrap import fill

import numpy as np
import numpy.typing as npt

from raysim.evaluation.metrics import PROTOCOL_NAMES
from raysim.records.figures import draw_matrix
from raysim.report.grouping import Group, Setting
from raysim.report.plots.drawing import BAND, Drawn, blank, for_lines, legend_below, looks, whole_numbers

Array = npt.NDArray[np.float64]


def plots_of_tasks(setting: Setting) -> Iterator[Drawn]:
    """Yield the plots by task, for every protocol."""
    for protocol in setting.protocols:
        yield _matrices(setting, protocol)
        if setting.in_step and setting.tasks > 1:
            yield _after_each_task(setting, protocol)
            yield _forgetting(setting, protocol)


def _accuracies(group: Group, protocol: str) -> Array:
    """Return a[seed][t][i] in %, of the seeds of a group."""
    return 100 * np.asarray([run.evaluation[protocol].accuracy for run in group.runs])


def _matrices(setting: Setting, protocol: str) -> Drawn:
    tasks, count = setting.tasks, len(setting.groups)
    columns = min(count, 2 if tasks > 5 else 3)
    rows = math.ceil(count / columns)
    width, height = 1.2 + 0.42 * tasks, max(1.2 + 0.32 * tasks, 2.4)
    figure = blank(max(columns * width + 0.8, 4.5), rows * height)
    for index, group in enumerate(setting.groups, 1):
        axes = figure.add_subplot(rows, columns, index)
        image = draw_matrix(axes, (_accuracies(group, protocol).mean(axis=0) / 100).tolist())
        ticks = whole_numbers(tasks)
        axes.set_xticks([tick - 1 for tick in ticks], [str(tick) for tick in ticks])
        axes.set_yticks([tick - 1 for tick in ticks], [str(tick) for tick in ticks])
        axes.grid(False)
        if not setting.in_step:
            axes.set_ylabel("after part of the run")
        axes.set_title(fill(group.label, max(12, int((width - 0.5) / 0.1))))
    figure.colorbar(image, ax=figure.axes, label=f"accuracy (%), {PROTOCOL_NAMES.get(protocol, protocol)}", shrink=0.6)
    moment = "after task t" if setting.in_step else f"after t of {tasks} equal parts of the run"
    words = f"Accuracy matrices, {PROTOCOL_NAMES.get(protocol, protocol)}: mean over seeds; "
    words += f"row t is {moment}, column i task i."
    return Drawn(f"{setting.number}-{protocol}-accuracy-matrix", words, figure)


def _after_each_task(setting: Setting, protocol: str) -> Drawn:
    tasks = setting.tasks
    figure = for_lines([group.label for group in setting.groups])
    axes = figure.add_subplot()
    x = np.arange(1, tasks + 1)
    for group, look in zip(setting.groups, looks(len(setting.groups)), strict=True):
        matrices = _accuracies(group, protocol)
        values = np.stack([matrices[:, t, : t + 1].mean(axis=1) for t in range(tasks)], axis=1)
        mean = values.mean(axis=0)
        axes.plot(x, mean, label=group.label, **look)
        if len(values) > 1:
            std = values.std(axis=0, ddof=1)
            axes.fill_between(x, mean - std, mean + std, color=look["color"], alpha=BAND, linewidth=0)
    axes.set(xlabel="after task", ylabel="average accuracy over the tasks so far (%)")
    axes.set_title(PROTOCOL_NAMES.get(protocol, protocol), loc="left")
    axes.set_xticks(whole_numbers(tasks))
    legend_below(figure, axes)
    words = f"Average accuracy after each task, {PROTOCOL_NAMES.get(protocol, protocol)}: mean over seeds"
    return Drawn(
        f"{setting.number}-{protocol}-accuracy-after-task", f"{words}; band: ± one standard deviation.", figure
    )


def _forgetting(setting: Setting, protocol: str) -> Drawn:
    tasks, count = setting.tasks, len(setting.groups)
    figure = for_lines([group.label for group in setting.groups], max(7.2, 0.14 * count * tasks))
    axes = figure.add_subplot()
    for index, (group, look) in enumerate(zip(setting.groups, looks(count), strict=True)):
        matrices = _accuracies(group, protocol)
        lost = matrices[:, :-1, :-1].max(axis=1) - matrices[:, -1, :-1]
        x = np.arange(1, tasks) + 0.7 * ((index + 0.5) / count - 0.5)  # side by side, so that none hides another
        std = lost.std(axis=0, ddof=1) if len(lost) > 1 else None
        axes.errorbar(
            x,
            lost.mean(axis=0),
            std,
            label=group.label,
            color=look["color"],
            marker=look["marker"],
            linestyle="none",
            elinewidth=1,
            markersize=7,
        )
    for edge in np.arange(1.5, tasks - 1):
        axes.axvline(edge, color="#eeeeee", linewidth=1, zorder=0)
    axes.axhline(0, color="#888888", linewidth=0.8)
    axes.grid(False, axis="x")
    axes.set(xlabel="task", ylabel="forgetting (%)")
    axes.set_title(PROTOCOL_NAMES.get(protocol, protocol), loc="left")
    axes.set_xticks(whole_numbers(tasks - 1))
    legend_below(figure, axes)
    words = (
        f"Forgetting of each task but the last, {PROTOCOL_NAMES.get(protocol, protocol)}: its best accuracy before the "
    )
    words += "last task less the final one; mean over seeds, bars: ± one standard deviation."
    return Drawn(f"{setting.number}-{protocol}-forgetting", words, figure)
