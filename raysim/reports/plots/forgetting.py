"""What every method has forgotten of every task, as a heat map."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from raysim.objectives import Metric
from raysim.records.figures import MOST_NUMBERED
from raysim.reports.plots import style
from raysim.reports.plots.cells import TITLED
from raysim.reports.plots.matrices import has_names
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Array, Drawing

LESS_IS_BETTER = "its final {} less the best one before the last task"
MORE_IS_BETTER = "its best {} before the last task less the final one"
CELL = (0.46, 0.26)  # inches
GAP = 0.25  # of a cell, before the column of the mean
LETTER = 0.08  # inches
FEW = 3  # methods, whose cells have numbers, need no color bar


def draw_forgetting(scene: Scene, protocol: str, matrices: Sequence[Array]) -> Drawing:
    """Return a heat map with a row for each group, that which forgets least first, and a column for each task.

    Args:
        scene: the setting.
        protocol: the protocol.
        matrices: by group: [seeds, tasks, tasks], as shown.
    """
    setting, label, metric = scene.setting, scene.setting.label(protocol), scene.setting.metric
    lost = [forgotten(found, metric) for found in matrices]
    order = sorted(range(len(lost)), key=lambda index: float(lost[index].mean()))
    tasks, labels = setting.tasks - 1, [scene.labels[index] for index in order]
    names = [*scene.task_names[:-1], "mean"] if has_names(scene.task_names) else _number(tasks)
    turned = LETTER * max(map(len, names)) if has_names(scene.task_names) else 0.2
    width = LETTER * max(map(len, labels)) + CELL[0] * (tasks + 1 + GAP) + 1.1
    figure = style.make_figure(max(width, 3.25), CELL[1] * len(labels) + 0.8 + 0.7 * turned)
    axes = figure.add_subplot()
    mesh = _draw_cells(axes, [lost[index] for index in order], labels, metric)
    centers = [*np.arange(tasks) + 0.5, tasks + GAP + 0.5]
    step = -(-tasks // MOST_NUMBERED)
    axes.set_xticks([*centers[:-1:step], centers[-1]], [*names[:-1:step], names[-1]])
    if has_names(scene.task_names):
        for text in axes.get_xticklabels():
            text.set(rotation=45, ha="right", rotation_mode="anchor")
    else:
        axes.set_xlabel("task")
    axes.set_yticks(np.arange(len(labels)) + 0.5, labels)
    axes.set_title(f"forgetting{metric.axis}, {label}", loc="left", wrap=False)
    if len(labels) > FEW or tasks > MOST_NUMBERED:
        figure.colorbar(mesh, ax=axes, label=f"forgetting{metric.axis}", aspect=14, shrink=min(1.0, 9 / len(labels)))
    less = MORE_IS_BETTER if metric.higher_is_better else LESS_IS_BETTER
    words = f"Forgetting of each task but the last, {label}: {less.format(metric.name)}"
    sorting = "methods that forget least are above; purple: the task got better."
    return Drawing(f"{setting.number}-{protocol}-forgetting", f"{words}; mean over seeds; {sorting}", figure, width)


def forgotten(found: Array, metric: Metric) -> Array:
    """Return what was forgotten of each task but the last, [seeds, tasks - 1], from matrices [seeds, tasks, tasks]."""
    upward = found if metric.higher_is_better else -found
    lost: Array = upward[:, :-1, :-1].max(axis=1) - upward[:, -1, :-1]
    return lost


def _number(tasks: int) -> list[str]:
    return [*map(str, range(1, tasks + 1)), "mean"]


def _draw_cells(axes: Axes, lost: Sequence[Array], labels: Sequence[str], metric: Metric) -> QuadMesh:
    """Draw a row for each group and, to the right, the mean over its tasks; from purple over white for 0 to orange."""
    tasks = lost[0].shape[1]
    most = max(max(float(np.abs(found.mean(axis=0)).max()) for found in lost), 1e-9)
    blocks = (
        (lost, 0.0, [f"of task {task}" for task in range(1, tasks + 1)]),
        ([found.mean(axis=1, keepdims=True) for found in lost], tasks + GAP, ["mean over tasks"]),
    )
    for values, left, what in blocks:
        means = np.stack([found.mean(axis=0) for found in values])
        edges = left + np.arange(len(what) + 1)
        mesh = axes.pcolormesh(edges, range(len(labels) + 1), means, cmap="PuOr_r", vmin=-most, vmax=most)
        if means.size <= TITLED:
            said = [
                f"{label}: {style.describe_seeds(found[:, column], metric)} {words}"
                for label, found in zip(labels, values, strict=True)
                for column, words in enumerate(what)
            ]
            style.put_titles(mesh, "forgetting", said)
        if tasks <= MOST_NUMBERED:
            _write_numbers(axes, means, left, most, 0 if metric.unit == "%" else 2)
    axes.invert_yaxis()
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return mesh


def _write_numbers(axes: Axes, means: Array, left: float, most: float, digits: int) -> None:
    for (row, column), value in np.ndenumerate(means):
        color = "white" if abs(value) > 0.65 * most else "black"
        shown = f"{round(value, digits) + 0.0:.{digits}f}"  # + 0.0: no -0
        number = axes.text(left + column + 0.5, row + 0.5, shown, ha="center", va="center", color=color)
        number.set_in_layout(False)  # it is within the axes; there are many
