"""How every plot of a report looks: colours, marks, sizes; and how one becomes a PNG and an SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from raysim.report.content import Plot

# Okabe and Ito's colours, told apart by colour-blind readers; without their yellow, which is too light for a line
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # as many as have no divisor in common with the colours
DASHES = ("-", "--", "-.", ":")

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    "svg.hashsalt": "raysim",  # files are alike from one report to the next
}

LETTER = 0.085  # inches that a letter takes
BAND = 0.13  # how dense a band of one standard deviation is


@dataclass(frozen=True)
class Drawing:
    """A finished drawing: the stem of its files, what it shows in words, and the figure."""

    stem: str
    caption: str
    figure: Figure


def choose_looks(count: int) -> list[dict[str, Any]]:
    """Return as many looks, which tell lines apart; colours come again with other marks, and with other dashes."""
    return [
        {
            "color": COLOURS[index % len(COLOURS)],
            "marker": MARKERS[index % len(MARKERS)],
            "linestyle": DASHES[index // len(COLOURS) % len(DASHES)],
        }
        for index in range(count)
    ]


def make_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))


def make_chart(labels: Sequence[str], title: str, xlabel: str, ylabel: str, width: float = 7.2) -> tuple[Figure, Axes]:
    """Return a figure with an empty chart and, below it, room for a legend with these labels."""
    figure = make_figure(width, 3.9 + 0.21 * math.ceil(len(labels) / _columns(labels, width)))
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, loc="left")
    return figure, axes


def put_legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of some axes under all of them, in as many columns as there is room for."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=_columns(labels, figure.get_figwidth()))


def _columns(labels: Sequence[str], width: float) -> int:
    longest = 0.6 + LETTER * max(map(len, labels))
    return max(1, min(4, len(labels), int(width / longest)))


def choose_ticks(last: int, most: int = 12) -> Sequence[int]:
    """Return at most so many ticks from 1 to `last`."""
    return range(1, last + 1, -(-last // most))


def save_drawing(drawing: Drawing, folder: Path) -> Plot:
    """Write STEM.png and STEM.svg into a folder that exists."""
    figure = drawing.figure
    figure.savefig(folder / f"{drawing.stem}.png", dpi=150)
    figure.set_layout_engine("none")  # it is laid out now: once is half of the work
    figure.savefig(folder / f"{drawing.stem}.svg", metadata={"Date": None})
    return Plot(folder, drawing.stem, drawing.caption, figure.get_figwidth())
