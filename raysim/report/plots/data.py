"""Samples by client, task and class, and where tasks do not change at once, which client is at which task when.

The data are dealt again from the config.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from raysim.config import load
from raysim.federation.assignment import NOTHING
from raysim.federation.federation import Federation, build_federation
from raysim.records.figures import draw_timeline
from raysim.report.grouping import ExperimentSetting
from raysim.report.plots.style import Drawing, choose_ticks, make_figure
from raysim.system.errors import ConfigError

Counts = npt.NDArray[np.int64]

NUMBERED = 12  # cells a side; more numbers would not be legible


def draw_data_distribution(setting: ExperimentSetting) -> Iterator[Drawing]:
    """Yield the plots for the setting's first seed. Nothing is downloaded.

    Raises:
        ConfigError: the data are not there or are a stream of the user's own, or the config is not valid today.
    """
    run = setting.runs[0]
    config = load(run.config)
    federation = build_federation(config, download=False)
    if federation.opener is not None:
        raise ConfigError("the clients open streams of their own, whose classes nobody knows before")
    panels = [(count_by_task(federation), "task", 1)]
    words = "Training samples by client and task"
    if federation.objective.classes:
        panels.append((count_by_class(federation), "class", 0))
        words += ", and different ones by client and class, over all tasks"
    columns = sum(min(found.shape[1], 25) for found, _, _ in panels)
    figure = make_figure(3.2 + 0.42 * columns, min(1.8 + 0.26 * len(federation.streams), 12))
    for position, (found, what, first) in enumerate(panels, 1):
        _draw_panel(figure, (len(panels), position), found, what, first)
    yield Drawing(f"{setting.number}-who-holds-what", f"{words}; seed {run.summary.seed}.", figure)
    if not config.together:
        timeline = federation.availability.timeline()
        figure = make_figure(8, min(1.6 + 0.22 * max(len(timeline), 4), 12))
        axes = figure.add_subplot()
        draw_timeline(figure, axes, timeline)
        axes.grid(False)
        words = f"Which client is at which task, seed {run.summary.seed}; white: the client is not there."
        yield Drawing(f"{setting.number}-clients-at-tasks", words, figure)


def count_by_task(federation: Federation) -> Counts:
    """Return the samples by client and task."""
    of_tasks = [stream.counts_in(0, stream.windows) for stream in federation.streams]
    return np.asarray([[found.get(task, 0) for task in range(len(federation.tasks))] for found in of_tasks])


def count_by_class(federation: Federation) -> Counts:
    """Return the samples by client and class, where a row that tasks share counts once."""
    labels = federation.dataset.train.y
    rows = [np.unique(np.concatenate([NOTHING, *stream.rows])) for stream in federation.streams]
    return np.asarray([np.bincount(labels[own], minlength=federation.classes) for own in rows])


def _draw_panel(figure: Figure, place: tuple[int, int], found: Counts, what: str, first: int) -> None:
    axes = figure.add_subplot(1, *place)
    clients, columns = found.shape
    image = axes.imshow(found, cmap="Blues", vmin=0, aspect="auto")
    if max(clients, columns) <= NUMBERED:
        for (row, column), number in np.ndenumerate(found):
            colour = "white" if number > 0.6 * found.max() else "black"
            axes.text(column, row, str(number or ""), ha="center", va="center", color=colour, fontsize=8)
    axes.grid(False)
    ticks = [tick - 1 for tick in choose_ticks(columns)]
    axes.set_xticks(ticks, [str(tick + first) for tick in ticks])
    axes.set_yticks([tick - 1 for tick in choose_ticks(clients)])
    axes.set(xlabel=what, ylabel="client", title=f"samples by client and {what}")
    figure.colorbar(image, ax=axes)
