"""Plots of published against measured figures: the claimed gains, then the absolute values, by metric."""

from statistics import fmean
from textwrap import fill

import numpy as np
import numpy.typing as npt

from raysim.reports.content import ComparedPair, Comparison
from raysim.reports.plots import style
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing
from raysim.system.colors import GREY

PANEL = 3.3  # inches, across and down
ACROSS = 3  # panels in a row, so that they are readable in a paper
UNITS = {"gain": "points", "level": "%"}


def draw_compared(scene: Scene, comparison: Comparison, number: int) -> Drawing:
    """Return the plot of a comparison. Methods look as in the setting's other plots."""
    setting = scene.setting
    labels = [group.label for group in setting.groups]
    looks = dict(zip(labels, scene.looks, strict=True))
    shown = [label for label in labels if any(pair.label == label for pair in comparison.pairs)]
    kinds = [*dict.fromkeys(pair.kind for pair in comparison.pairs)]
    metrics = [*dict.fromkeys(pair.metric for pair in comparison.pairs)]
    across = min(len(metrics), ACROSS)
    down = -(-len(metrics) // ACROSS)  # rows of panels of each kind
    figure = style.make_figure(max(PANEL * across, 4.5), PANEL * down * len(kinds) + 0.21 * len(shown))
    for row, kind in enumerate(kinds):
        for column, metric in enumerate(metrics):
            pairs = [pair for pair in comparison.pairs if (pair.kind, pair.metric) == (kind, metric)]
            if not pairs:
                continue
            axes = figure.add_subplot(down * len(kinds), across, row * down * across + column + 1)
            middle = fmean(pair.published.mean for pair in pairs)
            axes.axline((middle, middle), slope=1, color=GREY, linewidth=1, linestyle="--", zorder=1)
            if kind == "gain":
                axes.axhline(0, color=GREY, linewidth=0.8)
                axes.axvline(0, color=GREY, linewidth=0.8)
            for pair in pairs:
                ends = _ends(pair)
                points = (pair.published.mean, pair.measured.mean)
                bars = [None if end is None else np.abs(end - mean) for end, mean in zip(ends, points, strict=True)]
                look = {**looks[pair.label], "linestyle": "none"}
                drawn = axes.errorbar(
                    *points, yerr=bars[1], xerr=bars[0], label=style.in_legend(pair.label), elinewidth=1, **look
                )
                words = f"{pair.label}: published {points[0]:.1f}, measured {points[1]:.1f} {UNITS[kind]}"
                style.put_titles(drawn.lines[0], words)
            unit = UNITS[kind]
            axes.set(xlabel=f"published ({unit})", ylabel=f"measured ({unit})")
            axes.set_title(fill(f"{kind}s: {metric}", 36), loc="left", fontsize=10)
    found = [axes.get_legend_handles_labels() for axes in figure.axes]
    handles = {label: handle for pair in found for handle, label in zip(*pair, strict=True)}
    style.put_legend(figure, {label: handles[style.in_legend(label)] for label in shown})
    words = (
        f"{comparison.title}, published and measured: gains with the interval of the measured one, levels with ± one "
        "standard deviation; on the dashed line both are equal."
    )
    return Drawing(f"{setting.number}-against-paper-{number}", words, figure)


def _ends(pair: ComparedPair) -> list[npt.NDArray[np.float64] | None]:
    """Return the ends of the bars of the published and the measured figure, [2, 1] each, or None without a bar."""
    return [
        None if one.std is None else np.clip([[one.mean - one.std], [one.mean + one.std]], *pair.bounds)
        for one in (pair.published, pair.measured)
    ]
