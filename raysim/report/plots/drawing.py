"""How every plot of a report looks: colours, marks, sizes; and how one becomes a PNG and an SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TypedDict

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

# Okabe and Ito's colours, told apart by colour-blind readers; without their yellow, which is too light for a line
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # as many as have no divisor in common with the colours
DASHES = ("-", "--", "-.", ":")

LETTER = 0.085  # inches that a letter takes
BAND = 0.13  # how dense a band of one standard deviation is


class Look(TypedDict):
    """What tells one group's line from the others'."""

    color: str
    marker: str
    linestyle: str


@dataclass(frozen=True)
class Drawn:
    """A finished drawing: the stem of its files, what it shows in words, and the figure."""

    stem: str
    caption: str
    figure: Figure


def looks(count: int) -> list[Look]:
    """Return as many looks; colours come again with other marks, and with other dashes."""
    pairs = islice(zip(cycle(COLOURS), cycle(MARKERS), strict=False), count)
    return [
        Look(color=colour, marker=marker, linestyle=DASHES[index // len(COLOURS) % len(DASHES)])
        for index, (colour, marker) in enumerate(pairs)
    ]


@contextmanager
def styled() -> Iterator[None]:
    """Set sizes and what makes files alike from one report to the next."""
    with rc_context(
        {
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
            "svg.hashsalt": "raysim",
        }
    ):
        yield


def blank(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))


def for_lines(labels: Sequence[str], width: float = 7.2) -> Figure:
    """Return an empty figure with room for a plot and, below it, a legend with these labels."""
    return blank(width, 3.9 + 0.21 * math.ceil(len(labels) / _columns(labels, width)))


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of some axes under all of them, in as many columns as there is room for."""
    handles, labels = axes.get_legend_handles_labels()
    columns = _columns(labels, figure.get_figwidth())
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _columns(labels: Sequence[str], width: float) -> int:
    longest = 0.6 + LETTER * max(map(len, labels))
    return max(1, min(4, len(labels), int(width / longest)))


def whole_numbers(last: int, most: int = 12) -> Sequence[int]:
    """Return at most so many ticks from 1 to `last`."""
    step = -(-last // most)
    return range(1, last + 1, step)


def save(drawn: Drawn, folder: Path) -> None:
    """Write STEM.png and STEM.svg."""
    drawn.figure.savefig(folder / f"{drawn.stem}.png", dpi=150)
    drawn.figure.set_layout_engine("none")  # it is laid out now: once is half of the work
    drawn.figure.savefig(folder / f"{drawn.stem}.svg", metadata={"Date": None})
