"""Plots of the recorded contents of the replay memories at each evaluation, by class and by task."""

from collections.abc import Iterator

import numpy as np

from raysim.reports.plots.cells import Counts, draw_cells
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing, make_figure

MOST_ROWS = 8  # methods whose memories differ; of more, the first


def draw_memories(scene: Scene) -> Iterator[Drawing]:
    """Yield the contents of the memories of each method's first run that has recorded them (logging.memory).

    Methods with the same contents at the same rounds are drawn once.

    Raises:
        ConfigError: a rounds.jsonl is missing or broken.
    """
    setting = scene.setting
    alike: dict[bytes, tuple[list[str], list[int], Counts]] = {}  # held: [rounds, tasks, classes]
    for group, courses in zip(setting.groups, scene.courses, strict=True):
        for rounds in courses:
            found = [(line.round, line.memory) for line in rounds if line.memory is not None]
            at, held = [at for at, _ in found], np.asarray([held for _, held in found], np.int64)
            if len(at) > 1 and held.any():
                alike.setdefault(repr((at, held.tolist())).encode(), ([], at, held))[0].append(group.label)
                break
    if not alike:
        return
    every = [*alike.values()][:MOST_ROWS]
    tasks, classes = every[0][2].shape[1:]
    kinds = [("class", 2, classes, 0), ("task", 1, tasks, 1)]  # what a row is, the axis to count, how many, the first
    kinds = [kind for kind in kinds if kind[2] > 1]
    if not kinds:
        return
    height = max(0.17 * max(count for *_, count, _ in kinds), 1.2) + 0.75
    figure = make_figure(9, min(height * len(every) + 0.3, 24))
    panels = figure.subplots(len(every), len(kinds), squeeze=False)
    for row, (labels, at, held) in zip(panels, every, strict=True):
        for axes, (what, axis, count, first) in zip(row, kinds, strict=True):
            counts = held.sum(axis=3 - axis).T  # [classes or tasks, evaluations]
            axes.set(xlabel="round", ylabel=what)
            axes.set_title(", ".join(labels), loc="left", fontsize=9)
            scale = draw_cells(axes, counts, range(first, first + count), at, int(counts.max()))
            figure.colorbar(scale, ax=axes)
    more = f", {len(every)} of {len(alike)} different ones" if len(alike) > len(every) else ""
    words = f"Samples in all clients' memories together at the evaluations, by {' and by '.join(k[0] for k in kinds)}"
    yield Drawing(f"{setting.number}-memories", f"{words}{more}; first seed that recorded them.", figure)
