"""Plots over the course of a run: accuracy against rounds, bytes and virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

import numpy as np

from raysim.evaluation.metrics import PROTOCOL_NAMES
from raysim.report.grouping import Setting
from raysim.report.plots.drawing import BAND, Drawn, for_lines, legend_below, looks
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
    "virtual time (s)",
    lambda rounds: [line.virtual_time for line in rounds if line.virtual_time is not None],
)


def plots_of_the_course(setting: Setting) -> Iterator[Drawn]:
    """Yield the plots for which the runs have the numbers.

    Against rounds, where there are evaluations beyond those after tasks, which have a plot already; against bytes,
    where there are two evaluations; against virtual time, where every round has one.

    Raises:
        ConfigError: a rounds.jsonl is missing or broken.
    """
    courses = [[read_rounds(run.directory) for run in group.runs] for group in setting.groups]
    every = [rounds for group in courses for rounds in group]
    after_tasks = setting.tasks if setting.in_step else 0
    often = all(sum(line.evaluation is not None for line in rounds) > after_tasks for rounds in every)
    timed = all(rounds and all(line.virtual_time is not None for line in rounds) for rounds in every)
    several = setting.tasks > 1 or often
    axes = [*([ROUNDS] if often else []), *([BYTES] if several else []), *([VIRTUAL_TIME] if timed else [])]
    for protocol in setting.protocols:
        yield from (_accuracy(setting, courses, protocol, axis) for axis in axes)


def _accuracy(setting: Setting, courses: Sequence[Sequence[Rounds]], protocol: str, axis: Axis) -> Drawn:
    figure = for_lines([group.label for group in setting.groups])
    axes = figure.add_subplot()
    for group, runs, look in zip(setting.groups, courses, looks(len(courses)), strict=True):
        points = [_points(rounds, protocol, axis, setting.in_step) for rounds in runs]
        # the k-th evaluations belong together, whose rounds differ where a run's length hangs on its seed
        across = np.asarray([found[: min(map(len, points))] for found in points]).reshape(len(points), -1, 2)
        x, values = across[..., 0].mean(axis=0), across[..., 1]
        mean = values.mean(axis=0)
        axes.plot(x, mean, label=group.label, **look, markevery=max(1, len(x) // 12))
        if len(values) > 1:
            std = values.std(axis=0, ddof=1)
            axes.fill_between(x, mean - std, mean + std, color=look["color"], alpha=BAND, linewidth=0)
    tasks = "the tasks so far" if setting.in_step else "all tasks"
    axes.set(xlabel=axis.words, ylabel=f"average accuracy over {tasks} (%)")
    axes.set_title(PROTOCOL_NAMES.get(protocol, protocol), loc="left")
    legend_below(figure, axes)
    words = f"Average accuracy against {axis.stem.replace('-', ' ')}, {PROTOCOL_NAMES.get(protocol, protocol)}"
    return Drawn(
        f"{setting.number}-{protocol}-accuracy-{axis.stem}",
        f"{words}: mean over seeds; band: ± one standard deviation.",
        figure,
    )


def _points(rounds: Rounds, protocol: str, axis: Axis, in_step: bool) -> list[tuple[float, float]]:
    """Return for every evaluation where it lies on the axis, and its accuracy in %."""
    return [
        (x, 100 * fmean(line.evaluation[protocol][: (line.so_far or max(line.tasks)) if in_step else None]))
        for line, x in zip(rounds, axis.of(rounds), strict=True)
        if line.evaluation is not None and protocol in line.evaluation and line.tasks
    ]
