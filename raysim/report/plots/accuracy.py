"""Plots of accuracy: by task, over the course of a run, and against backward transfer where one knob varies."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle
from statistics import fmean
from textwrap import fill

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from raysim.records.figures import draw_matrix, number_columns, number_rows
from raysim.report.grouping import ExperimentSetting, MethodGroup
from raysim.report.naming import derive_label, spell_method
from raysim.report.plots import style
from raysim.report.plots.style import Drawing
from raysim.report.reading import Methods, RoundRecord, read_rounds
from raysim.report.tables import learning_of

Array = npt.NDArray[np.float64]
Curve = tuple[Array, Array]
Rounds = Sequence[RoundRecord]
Courses = Sequence[Sequence[Rounds]]

LESS_IS_BETTER = "its final {} less the best one before the last task"
MEAN_AND_BAND = "mean over seeds; band: ± one standard deviation."


@dataclass(frozen=True)
class PlotAxis:
    """What accuracy is drawn against: a stem for the file, words for the axis, and one number per round."""

    stem: str
    words: str
    of: Callable[[Rounds], Sequence[float]]


ROUNDS = PlotAxis("rounds", "round", lambda rounds: [line.round for line in rounds])
BYTES = PlotAxis(
    "bytes",
    "sent up and down so far, all clients together (MiB)",
    lambda rounds: [*accumulate((line.bytes_up + line.bytes_down) / 2**20 for line in rounds)],
)
VIRTUAL_TIME = PlotAxis("virtual-time", "virtual time (s)", lambda rounds: [r.virtual_time or 0.0 for r in rounds])


@dataclass(frozen=True)
class KnobSweep:
    """Groups that differ in one number only, by its size; `rest` is what they share."""

    values: Sequence[float]
    groups: Sequence[MethodGroup]
    rest: Methods


def draw_over_tasks(setting: ExperimentSetting) -> Iterator[Drawing]:
    """Yield for every protocol the accuracy matrices, the accuracy after each task and the forgetting of each task."""
    for protocol in setting.protocols:
        label = setting.label(protocol)
        matrices = [
            setting.metric.scale * np.asarray([run.summary.evaluation[protocol]["accuracy"] for run in g.runs])
            for g in setting.groups
        ]
        yield _draw_matrices(setting, protocol, label, matrices)
        if setting.in_step and setting.tasks > 1:
            yield _draw_after_each_task(setting, protocol, label, matrices)
            yield _draw_forgetting(setting, protocol, label, matrices)


def draw_over_rounds(setting: ExperimentSetting) -> Iterator[Drawing]:
    """Yield the plots over the course of the runs for which they have the numbers.

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
        yield from (_draw_course(setting, courses, protocol, axis) for axis in axes)


def draw_tradeoffs(setting: ExperimentSetting) -> Iterator[Drawing]:
    """Yield a plot for every numeric knob of which there are groups that differ in it and in nothing else."""
    if not setting.in_step or setting.tasks == 1:
        return
    for (methods, method, knob), sweeps in _knob_sweeps(setting.groups).items():
        name = "-".join(["tradeoff", method, knob, "of", *methods])
        name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
        for protocol in setting.protocols:
            stem = f"{setting.number}-{protocol}-{name}"
            yield _draw_tradeoff(setting, sweeps, protocol, f"{spell_method(method)} {knob}", stem)


def _draw_matrices(setting: ExperimentSetting, protocol: str, label: str, matrices: Sequence[Array]) -> Drawing:
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


def _draw_after_each_task(setting: ExperimentSetting, protocol: str, label: str, matrices: Sequence[Array]) -> Drawing:
    tasks = range(1, setting.tasks + 1)
    curves = [
        (np.asarray(tasks), np.stack([found[:, t - 1, :t].mean(axis=1) for t in tasks], axis=1)) for found in matrices
    ]
    figure, axes = _draw_means(setting, label, curves, "after task")
    axes.set_xticks(style.choose_ticks(setting.tasks))
    words = f"Average {setting.metric.name} after each task, {label}: {MEAN_AND_BAND}"
    return Drawing(f"{setting.number}-{protocol}-accuracy-after-task", words, figure)


def _draw_forgetting(setting: ExperimentSetting, protocol: str, label: str, matrices: Sequence[Array]) -> Drawing:
    tasks, count = setting.tasks, len(matrices)
    labels = [group.label for group in setting.groups]
    metric = setting.metric
    figure, axes = style.make_chart(labels, label, "task", f"forgetting{metric.axis}", max(5.8, 0.14 * count * tasks))
    for index, (name, found, look) in enumerate(zip(labels, matrices, style.choose_looks(count), strict=True)):
        upward = found if metric.higher_is_better else -found
        lost = upward[:, :-1, :-1].max(axis=1) - upward[:, -1, :-1]
        x = np.arange(1, tasks) + 0.7 * ((index + 0.5) / count - 0.5)  # side by side, so that none hides another
        mean = lost.mean(axis=0)
        bars = None if len(lost) == 1 else np.abs(style.spread(lost, style.range_of(metric, change=True)) - mean)
        axes.errorbar(x, mean, bars, label=name, elinewidth=1, markersize=7, **look | {"linestyle": "none"})
    for edge in np.arange(1.5, tasks - 1):
        axes.axvline(edge, color=style.FAINT, linewidth=0.6, zorder=0)
    axes.axhline(0, color="#888888", linewidth=0.8)
    axes.grid(False, axis="x")
    axes.set_xticks(style.choose_ticks(tasks - 1))
    style.put_legend_below(figure, axes)
    less = "its best {} before the last task less the final one" if metric.higher_is_better else LESS_IS_BETTER
    words = f"Forgetting of each task but the last, {label}: {less.format(metric.name)}"
    words += "; mean over seeds, bars: ± one standard deviation."
    return Drawing(f"{setting.number}-{protocol}-forgetting", words, figure)


def _draw_course(setting: ExperimentSetting, courses: Courses, protocol: str, axis: PlotAxis) -> Drawing:
    label = setting.label(protocol)
    curves = []
    for runs in courses:
        points = [_points(setting, rounds, protocol, axis) for rounds in runs]
        # the k-th evaluations belong together, whose rounds differ where a run's length depends on its seed
        across = np.asarray([found[: min(map(len, points))] for found in points]).reshape(len(points), -1, 2)
        curves.append((across[..., 0].mean(axis=0), across[..., 1]))
    figure, axes = _draw_means(setting, label, curves, axis.words)
    for line, (x, _) in zip(axes.lines, curves, strict=True):
        line.set_markevery(max(1, len(x) // 12))
    words = f"Average {setting.metric.name} against {axis.stem.replace('-', ' ')}, {label}: {MEAN_AND_BAND}"
    return Drawing(f"{setting.number}-{protocol}-accuracy-{axis.stem}", words, figure)


def _draw_means(setting: ExperimentSetting, title: str, curves: Sequence[Curve], xlabel: str) -> tuple[Figure, Axes]:
    """Draw for every group x[point] and values[seed, point]: the mean, and a band of one standard deviation."""
    labels = [group.label for group in setting.groups]
    tasks, metric = "the tasks so far" if setting.in_step else "all tasks", setting.metric
    figure, axes = style.make_chart(labels, title, xlabel, f"average {metric.name} over {tasks}{metric.axis}")
    for label, (x, values), look in zip(labels, curves, style.choose_looks(len(curves)), strict=True):
        mean = values.mean(axis=0)
        axes.plot(x, mean, label=label, **look)
        if len(values) > 1:
            band = style.spread(values, style.range_of(metric))
            axes.fill_between(x, *band, color=look["color"], alpha=style.BAND, linewidth=0)
    style.put_legend_below(figure, axes)
    return figure, axes


def _points(setting: ExperimentSetting, rounds: Rounds, protocol: str, axis: PlotAxis) -> list[tuple[float, float]]:
    """Return for every evaluation where it lies on the axis, and its accuracy in %, or other metric."""
    scale, in_step = setting.metric.scale, setting.in_step
    return [
        (x, scale * fmean(line.evaluation[protocol][: (line.so_far or max(line.tasks)) if in_step else None]))
        for line, x in zip(rounds, axis.of(rounds), strict=True)
        if line.evaluation is not None and protocol in line.evaluation and line.tasks
    ]


def _knob_sweeps(groups: Sequence[MethodGroup]) -> dict[tuple[tuple[str, ...], str, str], list[KnobSweep]]:
    """Return the sweeps by the methods, the one that varies, and its knob."""
    families: dict[tuple[tuple[str, ...], str, str, str], list[tuple[float, MethodGroup, Methods]]] = {}
    for group in groups:
        for method, knobs in group.methods.items():
            for knob, value in knobs.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    rest = {**group.methods, method: {key: knobs[key] for key in knobs if key != knob}}
                    family = families.setdefault((tuple(rest), method, knob, json.dumps(rest)), [])
                    family.append((float(value), group, rest))
    found: dict[tuple[tuple[str, ...], str, str], list[KnobSweep]] = {}
    for (methods, method, knob, _), family in families.items():
        if len(family) > 1:
            values, members, (rest, *_) = zip(*sorted(family, key=lambda member: member[0]), strict=True)
            found.setdefault((methods, method, knob), []).append(KnobSweep(values, members, rest))
    return found


def _draw_tradeoff(
    setting: ExperimentSetting, sweeps: Sequence[KnobSweep], protocol: str, knob: str, stem: str
) -> Drawing:
    label, metric = setting.label(protocol), setting.metric
    tested, _, backward = learning_of(metric)
    labels = [derive_label(sweep.rest, [other.rest for other in sweeps]) for sweep in sweeps]
    names = (f"average {metric.name}{metric.axis}", f"backward transfer{metric.axis}")
    figure, axes = style.make_chart(labels, label, *names)
    every = [value for sweep in sweeps for value in sweep.values]
    colours = Normalize(min(every), max(every))
    for sweep, rest, marker in zip(sweeps, labels, cycle(style.MARKERS), strict=False):
        x, y = (
            [fmean(quantity.by_seed(group, protocol).values()) for group in sweep.groups]
            for quantity in (tested, backward)
        )
        axes.plot(x, y, color="#999999", linewidth=1, zorder=1)
        points = axes.scatter(x, y, s=70, c=sweep.values, norm=colours, cmap="viridis", marker=marker, label=rest)
        points.set(edgecolors="black", linewidths=0.7, zorder=2)
        for turn, value in enumerate(sweep.values):
            above_or_below = (7, -13 if turn % 2 else 6)  # in turns, as the next point may be close
            axes.annotate(f"{value:g}", (x[turn], y[turn]), xytext=above_or_below, textcoords="offset points")
    axes.margins(0.12)
    figure.colorbar(points, label=knob)
    style.put_legend_below(figure, axes)
    words = (
        f"Backward transfer against {metric.name}, {label}, as {knob} varies: mean over seeds; best is up and to the "
    )
    return Drawing(stem, f"{words}{'right' if metric.higher_is_better else 'left'}.", figure)
