"""The accuracy matrices of a setting's methods."""

import math
from collections.abc import Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.image import AxesImage

from raysim.records.figures import MOST_NUMBERED, draw_matrix
from raysim.reports.plots import style
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Array, Drawing
from raysim.system.colors import INK

FUTURE = (0.53, 0.53, 0.53, 0.14)  # the color of a task before its training
FAINT_INK = 0.65  # how dense its number is: legible on a light page and on a dark one
LETTER = 0.075  # inches that a letter of a task's name takes


def draw_matrices(scene: Scene, protocol: str, matrices: Sequence[Array]) -> Drawing:
    """Return the matrices of the highlighted groups. Tasks before their training are grey.

    Args:
        scene: the setting.
        protocol: the protocol.
        matrices: by group: [seeds, tasks, tasks], as shown.
    """
    setting, label, metric = scene.setting, scene.setting.label(protocol), scene.setting.metric
    members = sorted(scene.highlights(protocol).members)
    tasks, names = setting.tasks, scene.task_names
    longest = LETTER * max(map(len, names)) * has_names(names)
    columns = min(len(members), 2 if tasks > 5 else 3)
    rows = math.ceil(len(members) / columns)
    width, height = 1.0 + 0.42 * tasks, max(1.0 + 0.32 * tasks, 1.9)
    figure = style.make_figure(max(columns * width + 0.8 + longest, 4.5), rows * height + 0.7 * longest)
    for position, index in enumerate(members, 1):
        axes = figure.add_subplot(rows, columns, position)
        image = draw_matrix(axes, (matrices[index].mean(axis=0) / metric.scale).tolist(), metric)
        if setting.in_step:
            grey_future(axes, image)
        if position % columns == 1 or columns == 1:
            name_ticks(axes.yaxis, names, "after task" if setting.in_step else "after part of the run")
        if position > len(members) - columns:
            name_ticks(axes.xaxis, names, "test set of task")
        axes.grid(False)
        for number in axes.texts:
            number.set_in_layout(False)  # those within the axes; there are many
        axes.set_title(fill(scene.labels[index], max(12, int((width - 0.5) / 0.1))))
    figure.colorbar(image, ax=figure.axes, label=f"{metric.name}{metric.axis}", shrink=0.6)
    moment = "after task t" if setting.in_step else f"after t of {tasks} equal parts of the run"
    name = f"{metric.name[0].upper()}{metric.name[1:]}"
    words = f"{name} matrices, {label}: mean over seeds; row t is {moment}, column i task i."
    grey = " Grey: tasks before their training." if setting.in_step and tasks > 1 else ""
    words += grey + scene.highlights(protocol).shown
    return Drawing(f"{setting.number}-{protocol}-accuracy-matrix", words, figure)


def grey_future(axes: Axes, image: AxesImage) -> None:
    """Make the tasks before their training grey in a matrix: the cells above its diagonal, and their numbers."""
    values = np.asarray(image.get_array(), np.float64)
    future = np.triu(np.ones(values.shape, bool), 1)
    image.set_cmap(image.get_cmap().with_extremes(bad=FUTURE))
    image.set_data(np.ma.masked_where(future, values))
    for number in axes.texts:
        column, row = number.get_position()
        if column > row:
            number.set(color=INK, alpha=FAINT_INK)


def has_names(names: Sequence[str]) -> bool:
    """Return whether tasks have names, and not only numbers."""
    return names[0] != "task 1"


def name_ticks(axis: Axis, names: Sequence[str], what: str) -> None:
    """Name the rows or columns of a chart of tasks. Names that are too long for columns are turned."""
    ticks = range(0, len(names), -(-len(names) // MOST_NUMBERED))
    named = has_names(names)
    axis.set_ticks(ticks, [names[tick] if named else str(tick + 1) for tick in ticks])
    axis.set_label_text(what)
    if named and isinstance(axis, XAxis):
        for text in axis.get_ticklabels():
            text.set(rotation=45, ha="right", rotation_mode="anchor")
