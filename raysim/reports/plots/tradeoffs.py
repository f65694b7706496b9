"""Plots of a swept hyperparameter: accuracy against backward transfer of groups that differ in one number only."""

import json
from collections.abc import Iterator, Sequence
from itertools import cycle
from statistics import fmean

from raysim.reports.grouping import MethodGroup
from raysim.reports.naming import derive_label, spell_method
from raysim.reports.plots import style
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing, Look
from raysim.reports.quantity_tables import learning_of
from raysim.reports.reading import Methods
from raysim.system.colors import GREY

KnobSweep = Sequence[tuple[float, MethodGroup, Look, Methods]]
"""Groups that differ in one number only, ascending: the number, the group, its look, and the common methods."""


def draw_tradeoffs(scene: Scene) -> Iterator[Drawing]:
    """Yield a plot for every numeric hyperparameter that is the only difference between some groups."""
    setting = scene.setting
    if not setting.in_step or setting.tasks == 1:
        return
    for protocol in setting.main_protocols:
        for (methods, method, knob), sweeps in _knob_sweeps(scene.evaluated(protocol)).items():
            name = "-".join(["tradeoff", method, knob, "of", *methods])
            name = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)
            stem = f"{setting.number}-{protocol}-{name}"
            yield _draw_tradeoff(scene, sweeps, protocol, f"{spell_method(method)} {knob}", stem)


def _knob_sweeps(scene: Scene) -> dict[tuple[tuple[str, ...], str, str], list[KnobSweep]]:
    """Return the sweeps by the methods, the method that varies, and its hyperparameter."""
    families: dict[tuple[tuple[str, ...], str, str, str], list[tuple[float, MethodGroup, Look, Methods]]] = {}
    for group, look in zip(scene.setting.groups, scene.looks, strict=True):
        for method, knobs in group.methods.items():
            for knob, value in knobs.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    rest = {**group.methods, method: {key: knobs[key] for key in knobs if key != knob}}
                    others = json.dumps([rest, group.own], sort_keys=True, default=str)
                    family = families.setdefault((tuple(rest), method, knob, others), [])
                    family.append((float(value), group, look, rest))
    found: dict[tuple[tuple[str, ...], str, str], list[KnobSweep]] = {}
    for (methods, method, knob, _), family in families.items():
        if len({value for value, *_ in family}) > 1:
            found.setdefault((methods, method, knob), []).append(sorted(family, key=lambda member: member[0]))
    return found


def _draw_tradeoff(scene: Scene, sweeps: Sequence[KnobSweep], protocol: str, knob: str, stem: str) -> Drawing:
    """Draw a mark for every group in its color, with the hyperparameter's value, and a line for every sweep."""
    label, metric = scene.setting.label(protocol), scene.setting.metric
    tested, _, backward = learning_of(metric)
    shared = [sweep[0][-1] for sweep in sweeps]
    labels = [derive_label(methods, shared) for methods in shared]
    names = (f"average {metric.name}{metric.axis}", f"backward transfer{metric.axis}")
    figure, axes = style.make_chart(labels, label, *names)
    for sweep, rest, marker in zip(sweeps, labels, cycle(style.MARKERS), strict=False):
        values, groups, looks, _ = zip(*sweep, strict=True)
        x, y = (
            [fmean(quantity.by_seed(group, protocol).values()) for group in groups] for quantity in (tested, backward)
        )
        axes.plot(x, y, color=GREY, linewidth=1, zorder=1, marker=marker, label=style.in_legend(rest))
        points = axes.scatter(x, y, s=70, c=[look["color"] for look in looks], marker=marker)
        points.set(edgecolors="black", linewidths=0.7, zorder=2)
        style.put_titles(
            points,
            rest,
            [f"{knob} {value:g}: {a:.4g}, {b:.4g}" for value, a, b in zip(values, x, y, strict=True)],
        )
        for turn, value in enumerate(values):
            above_or_below = (7, -13 if turn % 2 else 6)  # in turns, as the next point may be close
            axes.annotate(f"{value:g}", (x[turn], y[turn]), xytext=above_or_below, textcoords="offset points")
    axes.margins(0.12)
    style.put_legend_below(figure, axes)
    words = f"Backward transfer against {metric.name}, {label}, as {knob} varies, shown next to each mark"
    best = "right" if metric.higher_is_better else "left"
    return Drawing(stem, f"{words}: mean over seeds; best is up and to the {best}.", figure)
