"""Plots over the course of runs: each task's accuracy over rounds, and the average over rounds and costs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil

import numpy as np

from raysim.objectives.classification import ACCURACY_METRIC
from raysim.reports.plots import style
from raysim.reports.plots.accuracy import MEAN_AND_BAND, MOST_BANDS, draw_averages, make_average_chart
from raysim.reports.plots.scene import Rounds, Scene
from raysim.reports.plots.style import Array, Drawing
from raysim.system.colors import GREY

WIDTH = 5.8  # inches, of the panels by task together
MOST_TASKS = 10  # that have a panel each; of more, so many are drawn, evenly spaced


@dataclass(frozen=True)
class PlotAxis:
    """An x axis: the end of the file's name, the label, the number of each round, and a note for the caption."""

    stem: str
    words: str
    of: Callable[[Rounds], Sequence[float]]
    note: str = ""


ROUNDS = PlotAxis("rounds", "round", lambda rounds: [line.round for line in rounds])
BYTES = PlotAxis(
    "bytes",
    "sent up and down so far, all clients together (MiB)",
    lambda rounds: [*accumulate((line.bytes_up + line.bytes_down) / 2**20 for line in rounds)],
)
SECONDS = PlotAxis(
    "seconds",
    "seconds of training so far",
    lambda rounds: [*accumulate(line.seconds or 0.0 for line in rounds)],
    " Seconds are those of the machines that the runs had, without evaluation.",
)
VIRTUAL_TIME = PlotAxis("virtual-time", "virtual time (s)", lambda rounds: [r.virtual_time or 0.0 for r in rounds])


def draw_over_rounds(scene: Scene) -> Iterator[Drawing]:
    """Yield the plots over the course of the runs, if they have at least two evaluations.

    One is of each task. Others are of the average over bytes and over seconds. There is one over rounds if there are
    more evaluations than those after tasks, which have another plot. There is one over virtual time if it differs from
    counting rounds, because of the clients' speed, bandwidth or schedule.

    Raises:
        ConfigError: a rounds.jsonl is missing or broken.
    """
    for protocol in scene.setting.main_protocols:
        yield from _draw_courses(scene.evaluated(protocol), protocol)


def _draw_courses(scene: Scene, protocol: str) -> Iterator[Drawing]:
    setting, every = scene.setting, [rounds for group in scene.courses for rounds in group]
    evaluations = min(sum(line.evaluation is not None for line in rounds) for rounds in every)
    if evaluations < 2:
        return
    often = evaluations > (setting.tasks if setting.in_step else 0)
    measured = all(line.seconds is not None for rounds in every for line in rounds)
    timed = _has_own_time(setting.runs[0].config) and all(
        r.virtual_time is not None for rounds in every for r in rounds
    )
    axes = [*([ROUNDS] if often else []), BYTES, *([SECONDS] if measured else []), *([VIRTUAL_TIME] if timed else [])]
    if setting.tasks > 1:
        yield _draw_tasks(scene, protocol)
    yield from (_draw_average(scene, protocol, axis) for axis in axes)


def _has_own_time(config: Mapping[str, object]) -> bool:
    schedule = config.get("schedule")
    if not isinstance(schedule, Mapping):
        return False
    speeds = schedule.get("speeds")
    equal = not isinstance(speeds, Mapping) or speeds.get("kind", "constant") == "constant"
    return schedule.get("kind") == "asynchronous" or not equal or schedule.get("bandwidth") is not None


def _evaluated(rounds: Rounds, protocol: str, axis: PlotAxis) -> list[tuple[float, Sequence[float], int]]:
    """Return for every evaluation its place on the axis, the tasks' accuracies, and the number of tasks seen."""
    return [
        (x, line.evaluation[protocol], line.so_far or max(line.tasks))
        for line, x in zip(rounds, axis.of(rounds), strict=True)
        if line.evaluation is not None and protocol in line.evaluation and line.tasks
    ]


def _aligned(scene: Scene, protocol: str, axis: PlotAxis) -> Iterator[tuple[Array, Array, Array]]:
    """Yield for every group x [seeds, points], accuracies [seeds, points, tasks], tasks seen [seeds, points].

    The k-th evaluations of all seeds belong together. Their rounds differ if a run's length depends on its seed.
    """
    for runs in scene.courses:
        found = [_evaluated(rounds, protocol, axis) for rounds in runs]
        x, values, seen = zip(*(zip(*of[: min(map(len, found))], strict=True) for of in found), strict=True)
        yield np.asarray(x), scene.setting.metric.scale * np.asarray(values), np.asarray(seen)


def _draw_average(scene: Scene, protocol: str, axis: PlotAxis) -> Drawing:
    setting = scene.setting
    figure, axes = make_average_chart(scene, protocol, axis.words)
    lines = []
    for x, values, seen in _aligned(scene, protocol, axis):
        counted = np.arange(setting.tasks) < seen[..., None] if setting.in_step else np.ones(values.shape, bool)
        lines.append((x.mean(axis=0), np.where(counted, values, 0).sum(axis=2) / counted.sum(axis=2)))
    where = {"rounds": "after round", "bytes": "after MiB"}.get(axis.stem, "after s")
    draw_averages(axes, scene, protocol, lines, where)
    words = f"Average {setting.metric.name} against {axis.stem.replace('-', ' ')}, {setting.label(protocol)}"
    words = f"{words}: {MEAN_AND_BAND}{axis.note}{scene.highlights(protocol).in_color_with_bounds}"
    return Drawing(f"{setting.number}-{protocol}-accuracy-{axis.stem}", words, figure)


def _draw_tasks(scene: Scene, protocol: str) -> Drawing:
    """Draw a panel for each task, all with the same axes. The legend is in the place of a missing panel, or below."""
    setting, metric, highlights = scene.setting, scene.setting.metric, scene.highlights(protocol)
    shown = sorted({round(task) for task in np.linspace(0, setting.tasks - 1, min(setting.tasks, MOST_TASKS))})
    columns = 1 if len(shown) < 4 else 2
    rows, labels = ceil(len(shown) / columns), [scene.labels[index] for index in sorted(highlights.members)]
    hole = len(shown) % columns > 0
    figure = style.make_figure(WIDTH, 0.6 + 1.25 * rows + (0 if hole else style.legend_height(labels, WIDTH)))
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    boundaries, banded = _boundaries(scene), len(setting.groups) <= MOST_BANDS
    every = [*zip(scene.labels, scene.looks, _aligned(scene, protocol, ROUNDS), strict=True)]
    for task, axes in zip(shown, panels, strict=False):
        for end in boundaries[1:-1]:
            axes.axvline(end, color=GREY, linewidth=0.8, linestyle=":", zorder=0.5)
        if boundaries:
            axes.axvspan(boundaries[task], boundaries[task + 1], color=GREY, alpha=0.12, linewidth=0)
        for index, (label, look, (x, values, _)) in enumerate(every):
            at, of_task = x.mean(axis=0), values[..., task]
            if index in highlights.members:
                where, small = f"on task {task + 1} after round", look | {"markersize": 3}
                style.draw_mean(axes, at, of_task, label, small, metric, where, style.BAND * banded)
            else:
                style.draw_faded(axes, at, of_task, label, index in highlights.bounds)
        axes.set_title(scene.task_names[task], loc="left", fontsize="small")
    if metric == ACCURACY_METRIC:
        panels[0].set(ylim=(0, 103), yticks=(0, 50, 100))  # shared by all
    for axes in panels[len(shown) - columns : len(shown)]:
        axes.set_xlabel("round")
        axes.xaxis.set_tick_params(labelbottom=True)
    figure.supylabel(f"{metric.name}{metric.axis}, {setting.label(protocol)}", fontsize="medium")
    handles, names = panels[0].get_legend_handles_labels()
    if hole:
        panels[-1].set_axis_off()
        panels[-1].legend(handles, names, loc="center left", ncols=1, fontsize="small")
    else:
        style.put_legend_below(figure, panels[0])
    which = "Each task's" if len(shown) == setting.tasks else f"{len(shown)} of {setting.tasks} tasks'"
    lines = " Dotted: where a task ends; shaded: the task's own rounds." if boundaries else ""
    means = MEAN_AND_BAND if banded else "mean over seeds."
    words = (
        f"{which} {metric.name} over rounds, {setting.label(protocol)}: {means}{lines}{highlights.in_color_with_bounds}"
    )
    return Drawing(f"{setting.number}-{protocol}-accuracy-by-task", words, figure)


def _boundaries(scene: Scene) -> Sequence[int]:
    """Return the rounds after which tasks end, from 0 on; empty if a task has no end or several."""
    setting = scene.setting
    found = set()
    for rounds in (rounds for group in scene.courses for rounds in group):
        seen = [line.so_far or max(line.tasks, default=0) for line in rounds]
        ends = [line.round for line, (now, then) in zip(rounds, pairwise(seen), strict=False) if then > now]
        found.add((0, *ends, rounds[-1].round))
    (only,) = found if len(found) == 1 else ((),)
    return only if setting.in_step and len(only) == setting.tasks + 1 else ()
