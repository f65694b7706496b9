"""The style of a report's plots: colors, marks, sizes and titles on hover; and writing them as SVG."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from raysim.objectives import Metric
from raysim.reports.content import Plot
from raysim.reports.plots.line_labels import LabelLayout
from raysim.system.colors import COLORS, FAINT, GREY, INK, PAPER

Array = npt.NDArray[np.float64]
Look = dict[str, Any]
Bounds = tuple[float | None, float | None]

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # as many as have no divisor in common with the colours
PIXELS = 100  # of a figure in a notebook, to the inch
DASHES = ("-", (0, (4, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
FADED: Look = {"color": GREY, "alpha": 0.45, "linewidth": 1.0, "zorder": 1.5}  # of a line that is not highlighted
BOUND: Look = {"color": GREY, "linewidth": 1.4, "linestyle": ":", "zorder": 1.6}

STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "legend.frameon": False,
    # what a dark page draws in light ink; fields of colour, numbers and series have colours of their own
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "axes.facecolor": "none",
    "text.parse_math": False,  # a dollar in a method's name is a dollar
    "svg.fonttype": "none",  # text stays text: to be read, found and copied; and files are small
    "font.sans-serif": ["DejaVu Sans"],
    "svg.hashsalt": "raysim",  # files are alike from one report to the next
}

LETTER = 0.085  # inches that a letter takes
BAND = 0.13  # how dense a band of one standard deviation is
MARKS = 12  # on a line, at most

HOVER = "hover: "  # how the gid of an artist begins whose rest is a JSON list of its title and those of its shapes
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
GROUP, USE, PATH, TITLE, DEFS = (f"{{{SVG}}}{tag}" for tag in ("g", "use", "path", "title", "defs"))

Xml.register_namespace("", SVG)
Xml.register_namespace("xlink", XLINK)


@dataclass(frozen=True)
class Drawing:
    """A finished drawing: the stem of its files, what it shows in words, the figure, and its least width.

    A figure narrower than `least`, in inches on the screen, cannot be read.
    """

    stem: str
    caption: str
    figure: Figure
    least: float = 0.0


def choose_look(number: int, component: int = 0) -> Look:
    """Return the look of the line of a method, and of the method with a component. Colors repeat with other marks."""
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[(number + component // len(DASHES)) % len(MARKERS)],
        "linestyle": DASHES[component % len(DASHES)],
        **({"markerfacecolor": PAPER} if component else {}),
    }


def range_of(metric: Metric) -> Bounds:
    """Return the smallest and the largest value of a metric, as shown; None if unbounded."""
    low, high = (None if end is None else float(metric.scale * end) for end in metric.range)
    return low, high


def spread(values: Array, bounds: Bounds) -> Array:
    """Return the mean of values [seed, ...] minus and plus their deviation, [2, ...], clipped to the bounds."""
    mean, std = values.mean(axis=0), values.std(axis=0, ddof=1)
    low, high = (end if end is not None else outside for end, outside in zip(bounds, (-np.inf, np.inf), strict=True))
    return np.stack([mean - std, mean + std]).clip(low, high)


class ShownFigure(Figure):
    """A figure that a notebook shows as a picture, also if nothing has imported pyplot."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png", dpi=PIXELS)
        return file.getvalue()


def make_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches."""
    return ShownFigure(figsize=(width, height), layout=LabelLayout(w_pad=0.08, h_pad=0.06))


def make_chart(labels: Sequence[str], title: str, xlabel: str, ylabel: str, width: float = 5.8) -> tuple[Figure, Axes]:
    """Return a figure with an empty chart and, below it, room for a legend with these labels."""
    figure = make_figure(width, 3.9 + legend_height(labels, width))
    axes = figure.add_subplot()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_title(title, loc="left")
    return figure, axes


def draw_faded(axes: Axes, x: Array, values: Array, label: str, bound: bool) -> None:
    """Draw the mean of values [seeds, points] at x [points] as a grey line, with the label as its title."""
    (line,) = axes.plot(x, values.mean(axis=0), **(BOUND if bound else FADED))
    put_titles(line, label)


def draw_mean(
    axes: Axes, x: Array, values: Array, label: str, look: Look, metric: Metric, where: str, band: float = BAND
) -> None:
    """Draw the mean of values [seeds, points] at x [points] as a line with marks, and a band of one standard deviation.

    `band` is how dense the band is; 0 is none. A mark's title begins with the label and ends with `where` and its x.
    """
    mean, every = values.mean(axis=0), -(-len(x) // MARKS)
    (line,) = axes.plot(x, mean, label=in_legend(label), markevery=every, **look)
    if band > 0 and len(values) > 1:
        axes.fill_between(x, *spread(values, range_of(metric)), color=look["color"], alpha=band, linewidth=0)
    marks = range(0, len(x), every)
    put_titles(line, label, [f"{label}: {describe_seeds(values[:, k], metric)} {where} {x[k]:.4g}" for k in marks])


def describe_seeds(values: Array, metric: Metric) -> str:
    """Return the mean of values as text, with the deviation of several: `85.2 ± 0.4 %`."""
    digits, unit = (".1f", " %") if metric.unit == "%" else (".3g", metric.unit and f" {metric.unit}")
    std = f" ± {values.std(ddof=1):{digits}}" if len(values) > 1 else ""
    return f"{values.mean():{digits}}{std}{unit}"


def put_titles(artist: Artist, title: str, parts: Sequence[str] = ()) -> None:
    """Give an artist and each of its marks or shapes a title, which the SVG shows on hover."""
    artist.set_gid(HOVER + json.dumps([title, *parts]))


def legend_height(labels: Sequence[str], width: float) -> float:
    """Return the height in inches of a legend with these labels."""
    return 0.21 * math.ceil(len(labels) / _columns(labels, width))


def in_legend(label: str) -> str:
    """Return a label that matplotlib shows in a legend. It leaves out those that begin with an underscore."""
    return f" {label}" if label.startswith("_") else label


def put_legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of these axes below all axes, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    put_legend(figure, dict(zip(labels, handles, strict=True)))


def put_legend(
    figure: Figure, handles: Mapping[str, Any], width: float | None = None, size: float | None = None
) -> None:
    """Put a legend of handles by label below all axes, in as many columns as fit.

    Args:
        figure: the figure.
        handles: what to show, by label.
        width: the width in inches for type of the usual size; by default the figure's.
        size: the size of the type in points; by default the usual one.
    """
    ncols = _columns([*handles], width or figure.get_figwidth())
    figure.legend([*handles.values()], [*handles], loc="outside lower center", ncols=ncols, fontsize=size)


def _columns(labels: Sequence[str], width: float) -> int:
    longest = 0.6 + LETTER * max(map(len, labels))
    return max(1, min(4, len(labels), int(width / longest)))


def choose_ticks(last: int) -> Sequence[int]:
    """Return at most 12 ticks from 1 to `last`."""
    return range(1, last + 1, -(-last // 12))


def save_drawing(drawing: Drawing, folder: Path) -> Plot:
    """Write STEM.svg into a folder that exists."""
    plot = Plot(folder, drawing.stem, drawing.caption, drawing.figure.get_figwidth())
    write_svg(drawing.figure, plot.file)
    return plot


@contextmanager
def without_glyph_warnings() -> Iterator[None]:
    """Silence matplotlib's warnings of letters that its font lacks. In an SVG they are text for the fonts there."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


@without_glyph_warnings()
def write_svg(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, the same bytes each time."""
    drawn = StringIO()
    FigureCanvasSVG(figure).print_svg(drawn, metadata={"Date": None})  # savefig would draw it all twice
    root = Xml.fromstring(drawn.getvalue())
    for group in root.iter(GROUP):
        if group.get("id", "").startswith(HOVER):
            _insert_titles(group, *json.loads(group.attrib.pop("id").removeprefix(HOVER)))
    path.write_text(Xml.tostring(root, encoding="unicode") + "\n", encoding="utf-8")


def _insert_titles(group: Xml.Element, whole: str, *parts: str) -> None:
    """Put a title into a group, and one into each of its shapes."""
    defined = {shape for within in group.iter(DEFS) for shape in within.iter()}
    shapes = [*group.iter(USE)] or [shape for shape in group.iter(PATH) if shape not in defined]
    for shape, words in zip(shapes, parts, strict=False):
        Xml.SubElement(shape, TITLE).text = words
    first = Xml.Element(TITLE)
    first.text = whole
    group.insert(0, first)
