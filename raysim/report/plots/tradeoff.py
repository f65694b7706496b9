"""Backward transfer against accuracy, where groups differ in one number: what a knob trades for what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import fmean

from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from raysim.evaluation.metrics import PROTOCOL_NAMES
from raysim.report.grouping import Group, Setting
from raysim.report.labels import Methods, derived
from raysim.report.plots.drawing import MARKERS, Drawn, for_lines, legend_below
from raysim.report.quantities import ACCURACY, BACKWARD_TRANSFER


@dataclass(frozen=True)
class Sweep:
    """Groups that differ in one number only, by its size; `rest` is what they share."""

    values: Sequence[float]
    groups: Sequence[Group]
    rest: Methods


def plots_of_tradeoffs(setting: Setting) -> Iterator[Drawn]:
    """Yield a plot for every numeric knob of which there are groups that differ in it and in nothing else."""
    if not setting.in_step or setting.tasks == 1:
        return
    for (methods, method, knob), sweeps in _sweeps(setting.groups).items():
        stem = "-".join(["tradeoff", method, knob, "of", *methods])
        stem = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in stem)
        for protocol in setting.protocols:
            words = f"Backward transfer against accuracy, {PROTOCOL_NAMES.get(protocol, protocol)}, "
            words += f"as {method} {knob} varies"
            figure = _tradeoff(sweeps, protocol, f"{method} {knob}")
            yield Drawn(
                f"{setting.number}-{protocol}-{stem}", f"{words}: mean over seeds; best is up and to the right.", figure
            )


def _sweeps(groups: Sequence[Group]) -> dict[tuple[tuple[str, ...], str, str], list[Sweep]]:
    """Return the sweeps by the methods, the one that varies, and its knob."""
    families: dict[tuple[tuple[str, ...], str, str, str], list[tuple[float, Group, Methods]]] = {}
    for group in groups:
        for method, knobs in group.methods.items():
            for knob, value in knobs.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    rest = {**group.methods, method: {key: knobs[key] for key in knobs if key != knob}}
                    family = families.setdefault((tuple(rest), method, knob, json.dumps(rest)), [])
                    family.append((float(value), group, rest))
    found: dict[tuple[tuple[str, ...], str, str], list[Sweep]] = {}
    for (methods, method, knob, _), family in families.items():
        if len(family) > 1:
            values, members, rests = zip(*sorted(family, key=lambda member: member[0]), strict=True)
            found.setdefault((methods, method, knob), []).append(Sweep(values, members, rests[0]))
    return found


def _tradeoff(sweeps: Sequence[Sweep], protocol: str, knob: str) -> Figure:
    labels = [derived(sweep.rest, [other.rest for other in sweeps]) for sweep in sweeps]
    figure = for_lines(labels)
    axes = figure.add_subplot()
    every = [value for sweep in sweeps for value in sweep.values]
    colours = Normalize(min(every), max(every))
    for sweep, label, marker in zip(sweeps, labels, cycle(MARKERS), strict=False):
        x, y = (
            [fmean(group.by_seed(quantity.of(protocol)).values()) for group in sweep.groups]
            for quantity in (ACCURACY, BACKWARD_TRANSFER)
        )
        axes.plot(x, y, color="#999999", linewidth=1, zorder=1)
        points = axes.scatter(x, y, s=70, c=sweep.values, norm=colours, cmap="viridis", marker=marker, label=label)
        points.set(edgecolors="black", linewidths=0.7, zorder=2)
        for turn, value in enumerate(sweep.values):
            above_or_below = (7, -13 if turn % 2 else 6)  # in turns, as the next point may be close
            axes.annotate(f"{value:g}", (x[turn], y[turn]), xytext=above_or_below, textcoords="offset points")
    axes.set(xlabel="average accuracy (%)", ylabel="backward transfer (%)")
    axes.set_title(PROTOCOL_NAMES.get(protocol, protocol), loc="left")
    axes.margins(0.12)
    figure.colorbar(points, label=knob)
    legend_below(figure, axes)
    return figure
