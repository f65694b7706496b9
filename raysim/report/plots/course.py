"""Plots over the course of a run: accuracy against rounds, bytes and virtual time; which client is at which task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import ListedColormap

from raysim.figures import NAMES
from raysim.report.grouping import Setting
from raysim.report.plots.drawing import BAND, Drawn, blank, for_lines, legend_below, looks, whole_numbers
from raysim.report.rounds import Round, read_rounds

Rounds = Sequence[Round]


@dataclass(frozen=True)
class Axis:
    """What accuracy is drawn against: a stem for the file, words for the axis, and one number per round."""

    stem: str
    words: str
    of: Callable[[Rounds], Sequence[float]]


ROUNDS = Axis("rounds", "round", lambda rounds: [line.round for line in rounds])
BYTES = Axis(
    "bytes",
    "sent up and down so far, all clients together (MiB)",
    lambda rounds: [*accumulate((line.bytes_up + line.bytes_down) / 2**20 for line in rounds)],
)
VIRTUAL_TIME = Axis(
    "virtual-time",
    "virtual time",
    lambda rounds: [line.virtual_time for line in rounds if line.virtual_time is not None],
)


def plots_of_the_course(setting: Setting) -> Iterator[Drawn]:
    """Yield the plots for which the runs have the numbers: evaluations beyond those after tasks, virtual times, tasks.

    Raises:
        ConfigError: a rounds.jsonl is missing or broken.
    """
    courses = [[read_rounds(run.directory) for run in group.runs] for group in setting.groups]
    every = [rounds for group in courses for rounds in group]
    tasks = setting.runs[0].result.tasks
    often = all(sum(line.evaluation is not None for line in rounds) > tasks for rounds in every)
    timed = all(rounds and all(line.virtual_time is not None for line in rounds) for rounds in every)
    axes = [*([ROUNDS, BYTES] if often else []), *([VIRTUAL_TIME] if timed else [])]
    for protocol in setting.protocols:
        yield from (_accuracy(setting, courses, protocol, axis) for axis in axes)
    if _says_who_is_where(every[0]):
        yield _positions(setting, every[0])


def _accuracy(setting: Setting, courses: Sequence[Sequence[Rounds]], protocol: str, axis: Axis) -> Drawn:
    figure = for_lines([group.label for group in setting.groups])
    axes = figure.add_subplot()
    for group, runs, look in zip(setting.groups, courses, looks(len(courses)), strict=True):
        points = [_points(rounds, protocol, axis) for rounds in runs]
        common = sorted(set.intersection(*map(set, points)))
        x = [fmean(found[at][0] for found in points) for at in common]
        values = np.asarray([[found[at][1] for at in common] for found in points])
        mean = values.mean(axis=0)
        axes.plot(x, mean, label=group.label, **look, markevery=max(1, len(x) // 12))
        if len(values) > 1:
            std = values.std(axis=0, ddof=1)
            axes.fill_between(x, mean - std, mean + std, color=look["color"], alpha=BAND, linewidth=0)
    axes.set(xlabel=axis.words, ylabel="average accuracy over the tasks so far (%)")
    axes.set_title(NAMES.get(protocol, protocol), loc="left")
    legend_below(figure, axes)
    words = f"Average accuracy against {axis.stem.replace('-', ' ')}, {NAMES.get(protocol, protocol)}: mean over seeds"
    return Drawn(
        f"{setting.number}-{protocol}-accuracy-{axis.stem}", f"{words}; band: ± one standard deviation.", figure
    )


def _points(rounds: Rounds, protocol: str, axis: Axis) -> dict[int, tuple[float, float]]:
    """Return by round, where it was evaluated: where it lies on the axis, and its accuracy in %."""
    return {
        line.round: (x, 100 * fmean(line.evaluation[protocol][: max(line.tasks)]))
        for line, x in zip(rounds, axis.of(rounds), strict=True)
        if line.evaluation is not None and protocol in line.evaluation and line.tasks
    }


def _says_who_is_where(rounds: Rounds) -> bool:
    """Return whether there is a task for every client of every cohort, and not always the same one for all."""
    return all(len(line.tasks) == len(line.cohort) for line in rounds) and any(
        len(set(line.tasks)) > 1 for line in rounds
    )


def _positions(setting: Setting, rounds: Rounds) -> Drawn:
    clients, tasks = setting.runs[0].result.clients, setting.runs[0].result.tasks
    grid = np.full((clients, len(rounds)), np.nan)
    for column, line in enumerate(rounds):
        grid[line.cohort, column] = line.tasks
    figure = blank(8, min(1.6 + 0.22 * clients, 12))
    axes = figure.add_subplot()
    colours = ListedColormap(colormaps["viridis"](np.linspace(0, 1, tasks)))
    extent = (0.5, len(rounds) + 0.5, clients - 0.5, -0.5)
    image = axes.imshow(
        grid, aspect="auto", interpolation="nearest", cmap=colours, vmin=0.5, vmax=tasks + 0.5, extent=extent
    )
    axes.grid(False)
    axes.set(xlabel="round", ylabel="client")
    axes.set_yticks([tick - 1 for tick in whole_numbers(clients)])
    figure.colorbar(image, label="task", ticks=list(whole_numbers(tasks)))
    seed = setting.runs[0].result.seed
    words = f"Which client is at which task, seed {seed}; white: the client does not take part in the round."
    return Drawn(f"{setting.number}-clients-at-tasks", words, figure)
