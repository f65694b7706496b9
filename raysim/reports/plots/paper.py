"""Figures for a paper: PDF and SVG as wide as a column or a page, with type of eight points."""

from io import BytesIO
from pathlib import Path
from textwrap import fill

from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text

from raysim.reports.plots.style import STYLE, legend_height, put_legend, without_glyph_warnings, write_svg

COLUMN, PAGE = 3.25, 6.75
"""The widths in inches of a column and of a page of two columns."""
TYPE = 8  # points
WIDEST_FOR_A_COLUMN = 6.5  # inches: what is wider on the screen has several panels
MOST_PANELS = 16
LOWEST = 2.1  # inches without the legend
LONGEST = 28  # letters of a line of an axis
SCALE = TYPE / STYLE["font.size"]


@without_glyph_warnings()
def save_for_paper(figure: Figure, folder: Path, stem: str, least: float = 0.0) -> None:
    """Write STEM.pdf and STEM.svg into a folder that exists, if they can be read there.

    The figure has their size afterwards. One of many panels would be as high as several pages. `least` is the least
    width on the screen, in inches.
    """
    if len(figure.axes) > MOST_PANELS:
        return
    fits = figure.get_figwidth() <= WIDEST_FOR_A_COLUMN and SCALE * least <= COLUMN
    fit_to_paper(figure, COLUMN if fits else PAGE)
    drawn = BytesIO()
    FigureCanvasPdf(figure).print_pdf(drawn, metadata={"CreationDate": None})
    (folder / f"{stem}.pdf").write_bytes(drawn.getvalue())
    write_svg(figure, folder / f"{stem}.svg")


def fit_to_paper(figure: Figure, width: float) -> None:
    """Give a figure this width in inches, a height in proportion, smaller type and lines, and legends that fit."""
    before, height = figure.get_size_inches()
    for text in figure.findobj(Text):
        text.set_fontsize(SCALE * text.get_fontsize())
    for line in figure.findobj(Line2D):
        line.set_linewidth(SCALE * line.get_linewidth())
        line.set_markersize(SCALE * line.get_markersize())
    for axes in figure.axes:
        axes.set_ylabel(fill(axes.get_ylabel(), LONGEST))
    legends = [_take_off(figure, legend) for legend in [*figure.legends]]
    labels = [label for handles in legends for label in handles]
    room = width / SCALE  # in which type of the screen's size would be as tight
    body = height - (legend_height(labels, before) if labels else 0.0)
    below = SCALE * legend_height(labels, room) if labels else 0.0
    figure.set_size_inches(width, max(body * width / before, LOWEST) + below)
    for handles in legends:
        put_legend(figure, handles, room, TYPE)


def _take_off(figure: Figure, legend: Legend) -> dict[str, object]:
    """Remove a legend from its figure and return by label what it stands for."""
    drawn: dict[str, object] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        drawn |= dict(zip(labels, handles, strict=True))
    shown = zip(legend.get_texts(), legend.legend_handles, strict=True)
    found = {text.get_text(): drawn.get(text.get_text(), handle) for text, handle in shown}
    legend.remove()
    return found
