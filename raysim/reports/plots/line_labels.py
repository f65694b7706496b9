"""Labels at lines and points, in place of a legend. They move apart when a figure is laid out, at any size."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Annotation, Text

from raysim.system.colors import PAPER

WIDEST = 22  # letters of a line of a label
PLACE = 1.035  # where labels begin, as a part of the width of the axes
BESIDE, ABOVE = 12, 8  # pixels between a point and its label
CLOSE = 12  # pixels between the heights of a label and of a point that it would cover
GAP = 2.5  # pixels between two labels


class LineLabel(Annotation):
    """A label to the right of the axes, with a thin line to the point that it names."""

    def __init__(self, axes: Axes, point: tuple[float, float], label: str, color: str) -> None:
        arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.8, "linestyle": ":", "relpos": (0, 0.5)}
        arrow |= {"shrinkA": 1, "shrinkB": 3}
        place: dict[str, Any] = {
            "xytext": (PLACE, 0.5),
            "textcoords": "axes fraction",
            "annotation_clip": False,
            "clip_on": False,
        }
        super().__init__(fill(label, WIDEST), point, va="center", arrowprops=arrow, **place)
        axes.add_artist(self)

    def move(self, height: float) -> None:
        """Move the label to a height, as a part of that of the axes."""
        self.set_position((PLACE, height))


class PointLabel(Annotation):
    """A label next to a point, with a thin line to it."""

    def __init__(self, axes: Axes, point: tuple[float, float], label: str, color: str) -> None:
        place: dict[str, Any] = {"xytext": (0.5, 0.5), "textcoords": "axes fraction", "clip_on": False}
        box = {"boxstyle": "square,pad=0.05", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.75}
        super().__init__(label, point, va="center", bbox=box, **place)
        arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 3}
        self._line = Annotation("", point, arrowprops=arrow, **place)
        for artist in (self, self._line):
            artist.set_in_layout(False)  # they are within the axes
            axes.add_artist(artist)

    def move(self, left: float, end: float, height: float) -> None:
        """Move the label to a place, and its line to the end of the label that is closer to the point."""
        self.set_position((left, height))
        self._line.set_position((end, height))


class LabelLayout(ConstrainedLayoutEngine):
    """Lays a figure out, then moves its labels apart."""

    def execute(self, fig: Figure) -> None:
        """Lay the figure out."""
        super().execute(fig)
        for axes in fig.axes:
            _move_lines_apart(axes)
            _move_points_apart(axes)


def _move_lines_apart(axes: Axes) -> None:
    labels = [child for child in axes.get_children() if isinstance(child, LineLabel)]
    box = axes.get_window_extent()
    wanted = [float(axes.transData.transform(label.xy)[1]) for label in labels]
    heights = [Text.get_window_extent(label).height + GAP for label in labels]
    for label, place in zip(labels, spread_out(wanted, heights, box.y0, box.y1), strict=True):
        label.move((place - box.y0) / box.height)


def _move_points_apart(axes: Axes) -> None:
    """Put labels next to their points, on the side with fewer other points. Those in one column do not overlap."""
    labels = [child for child in axes.get_children() if isinstance(child, PointLabel)]
    box = axes.get_window_extent()
    points: list[tuple[float, float]] = [tuple(axes.transData.transform(label.xy)) for label in labels]
    sizes = [Text.get_window_extent(label) for label in labels]

    def count_hits(left: float, right: float, height: float) -> int:
        if left < box.x0 or right > box.x1:
            return len(points)
        return sum(left < x < right and abs(y - height) < CLOSE for x, y in points)

    spans = []
    for (x, y), size in zip(points, sizes, strict=True):
        sides = [(left, left + size.width) for left in (x + BESIDE, x - BESIDE - size.width)]
        spans.append(min(sides, key=lambda side: count_hits(side[0], side[1], y + ABOVE)))
    for members in _find_columns(spans):
        wanted = [points[member][1] + ABOVE for member in members]
        heights = [sizes[member].height + GAP for member in members]
        for member, place in zip(members, spread_out(wanted, heights, box.y0, box.y1), strict=True):
            left, right = spans[member]
            end = left if left > points[member][0] else right
            labels[member].move((left - box.x0) / box.width, (end - box.x0) / box.width, (place - box.y0) / box.height)


def _find_columns(spans: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Return the indices of spans from left to right that overlap, directly or through others, together."""
    columns: list[list[int]] = []
    reach = 0.0
    for index in sorted(range(len(spans)), key=lambda index: spans[index]):
        left, right = spans[index]
        if columns and left < reach:
            columns[-1].append(index)
            reach = max(reach, right)
        else:
            columns.append([index])
            reach = right
    return columns


def spread_out(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> list[float]:
    """Return places near the wanted ones for the centers of labels of these heights, so that none overlap.

    Labels that would overlap are put side by side, around the mean of their wanted places. All stay between `low` and
    `high`, unless they need more room.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    blocks: list[tuple[list[int], float, float]] = []  # members from below, where the block begins, its height
    for index in order:
        members, height, bottom = [index], heights[index], wanted[index] - heights[index] / 2
        bottom = _within(bottom, height, low, high)
        while blocks and blocks[-1][1] + blocks[-1][2] > bottom:
            members = [*blocks.pop()[0], *members]
            height = sum(heights[member] for member in members)
            below = [sum(heights[other] for other in members[:place]) for place in range(len(members))]
            starts = [
                wanted[m] - heights[m] / 2 - offset for m, offset in zip(members, below, strict=True)
            ]  # where the block would begin for each member to be at its place
            bottom = _within(sum(starts) / len(starts), height, low, high)
        blocks.append((members, bottom, height))
    places = [0.0] * len(wanted)
    for members, bottom, _ in blocks:
        for member in members:
            places[member] = bottom + heights[member] / 2
            bottom += heights[member]
    return places


def _within(bottom: float, height: float, low: float, high: float) -> float:
    return max(low, min(bottom, high - height))
