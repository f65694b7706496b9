"""Plots of a run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from raysim.metrics import Matrix

NAMES = {"domain_il": "domain-IL", "class_il": "class-IL", "task_il": "task-IL"}


def matrix_image(matrix: Matrix, protocol: str) -> npt.NDArray[np.uint8]:
    """Draw the accuracy matrix so far, rows after task t, columns test set i; uint8 [H, W, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    values = 100 * np.asarray(matrix)
    columns = values.shape[1]
    figure = Figure(figsize=(1.6 + 0.55 * columns, 1.4 + 0.5 * columns), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(values, vmin=0, vmax=100, cmap="viridis", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", color="white" if value < 60 else "black")
    axes.set_xticks(range(columns), [str(i + 1) for i in range(columns)])
    axes.set_yticks(range(columns), [str(i + 1) for i in range(columns)])
    axes.set_ylim(columns - 0.5, -0.5)  # all tasks from the start, so that the images of a run are alike
    axes.set(xlabel="test set of task", ylabel="after task", title=f"accuracy in %, {NAMES.get(protocol, protocol)}")
    figure.colorbar(image)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
