"""Plots of one run, drawn on given axes or as images (uint8 [H, W, 3])."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import PIL.Image

from raysim.config import Config
from raysim.evaluation.accuracy_matrix import Matrix, protocol_label
from raysim.objectives import Metric
from raysim.system.colors import SEQUENCE, choose_text_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Image = npt.NDArray[np.uint8]

MOST_NUMBERED = 40  # the most tasks at which accuracies are legible as numbers
LEFT, RIGHT, BELOW, ABOVE = 0.55, 0.75, 0.5, 0.3  # margins of a matrix in inches: labels, color bar, title


def can_draw() -> bool:
    """Return whether Matplotlib is installed. A run without it leaves out the plots that it draws."""
    return find_spec("matplotlib") is not None


def describe_undrawn(config: Config) -> Iterator[str]:
    """Yield a line if a run's plots are left out because Matplotlib is missing."""
    plots = {
        "the matrices in TensorBoard": config.logging.tensorboard,
        "clients_at_tasks.png": not config.together,
    }
    if not can_draw() and any(plots.values()):
        left_out = " and ".join(name for name, drawn in plots.items() if drawn)
        yield f"matplotlib is not installed, so this run has no image of {left_out}; pip install matplotlib"


def matrix_image(matrix: Matrix, protocol: str, in_step: bool, top_k: int, metric: Metric) -> Image:
    """Draw the accuracy matrix so far, or that of another metric; `in_step` as in accuracy_matrix.summarise."""
    from matplotlib.figure import Figure

    cells = min(len(matrix[0]), MOST_NUMBERED)
    wide, high = 1.6 + 0.55 * cells, 1.4 + 0.5 * cells
    figure = Figure(figsize=(wide, high), dpi=100)  # the layout "constrained" takes half as long again
    below, within = BELOW / high, 1 - (BELOW + ABOVE) / high
    axes = figure.add_axes((LEFT / wide, below, 1 - (LEFT + RIGHT) / wide, within))
    image = draw_matrix(axes, matrix, metric)
    number_rows(axes, len(matrix[0]), in_step)
    number_columns(axes, len(matrix[0]))
    figure.suptitle(f"{metric.title}, {protocol_label(protocol, top_k)}", y=1 - 0.08 / high, size="medium")
    figure.colorbar(image, cax=figure.add_axes((1 - (RIGHT - 0.1) / wide, below, 0.12 / wide, within)))
    return pixels(figure)


def draw_matrix(axes: Axes, matrix: Matrix, metric: Metric) -> AxesImage:
    """Draw the matrix as it is shown, a small one with its numbers, without ticks; rows not evaluated yet stay white.

    The better a value, the lighter it is. A metric without a least or a largest value is drawn from its own.
    """
    values = metric.scale * np.asarray(matrix)
    columns = values.shape[1]
    low, high = (None if end is None else metric.scale * end for end in metric.range)
    ramp = color_ramp()
    image = axes.imshow(
        values, vmin=low, vmax=high, cmap=ramp if metric.higher_is_better else ramp.reversed(), aspect="auto"
    )
    digits = ".0f" if metric.unit == "%" else ".2f"
    if columns <= MOST_NUMBERED:
        places = np.asarray(image.norm(values), np.float64)
        shares = places if metric.higher_is_better else 1 - places
        for (row, column), value in np.ndenumerate(values):
            color = choose_text_color(float(shares[row, column]))
            axes.text(column, row, format(value, digits), ha="center", va="center", color=color)
    axes.set(xticks=[], yticks=[])
    axes.set_ylim(columns - 0.5, -0.5)  # all tasks from the start, so that the images of a run are alike
    return image


def color_ramp() -> LinearSegmentedColormap:
    """Return the sequence of colors for Matplotlib."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("raysim", [tuple(part / 255 for part in color) for color in SEQUENCE])


def number_columns(axes: Axes, tasks: int) -> None:
    """Number the columns of a matrix: column i is test set i."""
    axes.set_xticks(*_task_numbers(tasks))
    axes.set_xlabel("test set of task")


def number_rows(axes: Axes, tasks: int, in_step: bool) -> None:
    """Number the rows of a matrix: row t is after task t, or, where clients are not in step, part t of the run."""
    axes.set_yticks(*_task_numbers(tasks))
    axes.set_ylabel("after task" if in_step else "after part of the run")


def _task_numbers(tasks: int) -> tuple[range, list[str]]:
    ticks = range(0, tasks, -(-tasks // MOST_NUMBERED))
    return ticks, [str(tick + 1) for tick in ticks]


def timeline_image(timeline: npt.NDArray[np.int64]) -> Image:
    """Draw each client's task over time, from Availability.timeline; white where it is absent.

    As Fed-A-GEM's Figure 4 (Dai et al., TMLR 2024), but with rounds in place of samples.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 1.6 + min(0.25 * max(len(timeline), 4), 12.0)), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    draw_timeline(figure, axes, timeline)
    axes.set_title("which client is at which task")
    return pixels(figure)


def draw_timeline(figure: Figure, axes: Axes, timeline: npt.NDArray[np.int64]) -> None:
    """Draw the timeline (int64 [clients, rounds], -1 where a client is absent) with its color bar of tasks."""
    from matplotlib.colors import BoundaryNorm
    from matplotlib.ticker import MaxNLocator

    clients, rounds = timeline.shape
    tasks = int(timeline.max()) + 1
    shown = np.ma.masked_less(timeline, 0)
    norm = BoundaryNorm(np.arange(tasks + 1) - 0.5, 256)
    edges = (0.5, rounds + 0.5, clients - 0.5, -0.5)
    image = axes.imshow(shown, aspect="auto", interpolation="none", cmap=color_ramp(), norm=norm, extent=edges)
    axes.set(xlabel="round", ylabel="client")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    ticks = np.unique(np.linspace(0, tasks - 1, min(tasks, 12)).round())
    figure.colorbar(image, label="task", ticks=ticks).set_ticklabels([f"{tick + 1:.0f}" for tick in ticks])


def pixels(figure: Figure) -> Image:
    """Return what a figure looks like."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def png(figure: Figure) -> bytes:
    """Return what a figure looks like, as a PNG file's bytes."""
    file = BytesIO()
    PIL.Image.fromarray(pixels(figure)).save(file, format="PNG")
    return file.getvalue()
