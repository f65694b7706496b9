"""Plots of the recorded data of the clients: samples by client, task and class, and each client's task over time."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from raysim.federation.holdings import Holdings
from raysim.records.figures import draw_timeline
from raysim.records.result import first_problem
from raysim.records.run_directory import CLIENTS
from raysim.reports.plots.cells import Counts, draw_cells
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing, choose_ticks, make_figure
from raysim.system.errors import ConfigError
from raysim.system.files import read_whole


def draw_data_distribution(scene: Scene) -> Iterator[Drawing]:
    """Yield the plots for the setting's first seed.

    Raises:
        ConfigError: the run has not recorded what its clients hold.
    """
    setting, run = scene.setting, scene.setting.runs[0]
    found, clients = read_holdings(run.directory), run.summary.clients
    by_task, by_class = np.asarray(found.by_task), np.asarray(found.by_class)
    whose = "" if len(found.clients) == clients else f" of {len(found.clients)} of {clients:,} clients, evenly spaced"
    panels = [
        *([(by_task, "task", 1, "by client and task")] if len({*by_task.ravel().tolist()}) > 1 else []),
        *([(by_class, "class", 0, "by client and class, each once over all tasks")] if by_class.size else []),
    ]
    if panels:
        columns = sum(min(counts.shape[1], 25) for counts, *_ in panels)
        figure = make_figure(3.2 + 0.42 * columns, min(1.8 + 0.26 * len(found.clients), 12))
        for position, (counts, what, first, _) in enumerate(panels, 1):
            axes = figure.add_subplot(1, len(panels), position)
            axes.set(xlabel=what, ylabel="client", title=f"samples by client and {what}")
            names = range(first, first + counts.shape[1])
            figure.colorbar(draw_cells(axes, counts, found.clients, names, counts.max()), ax=axes)
        words = f"Training samples{whose} {', and '.join(words for *_, words in panels)}; seed {run.summary.seed}."
        yield Drawing(f"{setting.number}-who-holds-what", words, figure)
    if found.at_tasks:
        timeline = _timeline(found, run.summary.rounds)
        figure = make_figure(8, min(1.6 + 0.22 * max(len(timeline), 4), 12))
        axes = figure.add_subplot()
        draw_timeline(figure, axes, timeline)
        rows = [row - 1 for row in choose_ticks(len(found.clients))]
        axes.set_yticks(rows, [str(found.clients[row]) for row in rows])
        axes.grid(False)
        words = f"Which client is at which task{whose}, seed {run.summary.seed}; white: the client is not there."
        yield Drawing(f"{setting.number}-clients-at-tasks", words, figure)


def read_holdings(directory: Path) -> Holdings:
    """Return the holdings of a run's clients. Raises ConfigError: clients.json is missing or invalid."""
    path = directory / CLIENTS
    try:
        return TypeAdapter(Holdings).validate_json(read_whole(path))
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: not recorded: the run is packed, of an older raysim, or has a custom stream"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error)}") from None


def _timeline(found: Holdings, rounds: int) -> Counts:
    """Return the task (from 0) of every client by round, -1 if it is absent: int64 [clients, rounds]."""
    timeline = np.full((len(found.at_tasks), rounds), -1)
    for row, changes in zip(timeline, found.at_tasks, strict=True):
        for round, task in changes:
            row[round - 1 :] = task - 1
    return timeline
