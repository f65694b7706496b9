"""Backward transfer against accuracy, where groups differ in one number: what a knob trades for what."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from statistics import fmean

from raysim.figures import NAMES
from raysim.report.grouping import Group, Setting, flat
from raysim.report.plots.drawing import Drawn, blank
from raysim.report.quantities import ACCURACY, BACKWARD_TRANSFER


def plots_of_tradeoffs(setting: Setting) -> Iterator[Drawn]:
    """Yield a plot for every numeric knob in which at least two groups differ, and in nothing else."""
    for knob, groups in _swept(setting.groups):
        for protocol in setting.protocols:
            if setting.runs[0].result.tasks > 1:
                yield _tradeoff(setting, protocol, knob, groups)


def _swept(groups: Sequence[Group]) -> Iterator[tuple[str, list[Group]]]:
    families: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        knobs = flat(group.methods)
        for knob, value in knobs.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                rest = json.dumps([*((key, other) for key, other in knobs.items() if key != knob), *group.methods])
                families.setdefault((knob, rest), []).append(group)
    for (knob, _), family in families.items():
        if len(family) > 1:
            yield knob, sorted(family, key=lambda group: _number(group, knob))


def _number(group: Group, knob: str) -> float:
    value = flat(group.methods)[knob]
    assert isinstance(value, int | float)
    return float(value)


def _tradeoff(setting: Setting, protocol: str, knob: str, groups: Sequence[Group]) -> Drawn:
    figure = blank(6.4, 4.8)
    axes = figure.add_subplot()
    x, y = (
        [fmean(group.by_seed(quantity.of(protocol)).values()) for group in groups]
        for quantity in (ACCURACY, BACKWARD_TRANSFER)
    )
    values = [_number(group, knob) for group in groups]
    axes.plot(x, y, color="#999999", linewidth=1, zorder=1)
    points = axes.scatter(x, y, c=values, cmap="viridis", s=70, edgecolors="black", linewidths=0.7, zorder=2)
    for index, value in enumerate(values):
        above_or_below = (7, -13 if index % 2 else 6)  # in turns, as the next point may be close
        axes.annotate(f"{value:g}", (x[index], y[index]), xytext=above_or_below, textcoords="offset points")
    axes.set(xlabel="average accuracy (%)", ylabel="backward transfer (%)")
    axes.set_title(NAMES.get(protocol, protocol), loc="left")
    axes.margins(0.12)
    figure.colorbar(points, label=knob)
    words = f"Backward transfer against accuracy, {NAMES.get(protocol, protocol)}, as {knob} varies: mean over seeds"
    words += "; the further up and to the right, the better."
    stem = "".join(letter if letter.isalnum() else "-" for letter in f"{knob}-{'-'.join(groups[0].methods)}")
    return Drawn(f"{setting.number}-{protocol}-tradeoff-{stem}", words, figure)
