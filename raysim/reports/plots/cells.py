"""Counts as a chart of cells, with numbers where there is room for them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable

from raysim.reports.plots.style import choose_ticks, put_titles
from raysim.system.colors import choose_text_on

Counts = npt.NDArray[np.int64]

NUMBERED = 12  # cells a side; more numbers would not be legible
TITLED = 1500  # cells with titles; more have none


def draw_cells(
    axes: Axes, found: Counts, rows: Sequence[object], columns: Sequence[object], most: int
) -> ScalarMappable:
    """Draw counts [rows, columns], the first row above, from white for none to dark for `most`; return the scale.

    Rows and columns have their names as ticks, as many as fit.
    """
    if found.size <= TITLED:
        mesh = axes.pcolormesh(found, cmap="Blues", vmin=0, vmax=most, edgecolors="#ffffff", linewidth=0.3)
        words = (axes.get_ylabel(), axes.get_xlabel())
        said = [
            f"{words[0]} {r}, {words[1]} {c}: {found[i, j]:,}"
            for i, r in enumerate(rows)
            for j, c in enumerate(columns)
        ]
        put_titles(mesh, axes.get_title(), said)
        axes.invert_yaxis()
        scale: ScalarMappable = mesh
    else:
        edges = (0, found.shape[1], found.shape[0], 0)
        scale = axes.imshow(found, cmap="Blues", vmin=0, vmax=most, aspect="auto", interpolation="none", extent=edges)
    if max(found.shape) <= NUMBERED:
        for (row, column), number in np.ndenumerate(found):
            colour = choose_text_on([float(part) for part in scale.to_rgba(np.asarray([number]))[0][:3]])
            axes.text(column + 0.5, row + 0.5, str(number or ""), ha="center", va="center", color=colour, fontsize=8)
    axes.grid(False)
    for axis, names in ((axes.xaxis, columns), (axes.yaxis, rows)):
        ticks = [tick - 1 for tick in choose_ticks(len(names))]
        axis.set_ticks([tick + 0.5 for tick in ticks], [str(names[tick]) for tick in ticks])
    return scale
