"""Boxes as rows of targets: each is checked, refused or clipped if it is outside its image, and counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, NoReturn

import numpy as np
from annotated_types import Ge, Le, doc
from pydantic import Field

from raysim.config.block import Block
from raysim.objectives.boxes import EDGE
from raysim.system.errors import ConfigError

LEAST = float(np.finfo(np.float32).tiny)  # a side below it becomes 0 in targets, which are float32
CLIP = "boxes: {outside: clip} cuts boxes to their image"

Row = tuple[float, float, float, float, float]
"""Class, x, y, w, h: a box in fractions of the image."""
Edges = tuple[float, float, float, float]
"""Left, top, right, bottom, in the units of the image's size."""


class BoxKeys(Block):
    """The boxes of images."""

    most: Annotated[int, Field(ge=1, le=1000)] = 64
    """The most boxes of an image."""
    outside: Literal["refuse", "clip"] = "refuse"
    """What happens to a box that is partly outside its image: it is an error, or it is cut to the image. With clip,
    boxes without an area in their image are left out. The number of both is shown."""


BoxesOfImage = Annotated[
    Annotated[int, Ge(1), Le(1000)] | BoxKeys,
    doc("the most boxes of an image, or a block with `most` and `outside`: clip cuts boxes to their image"),
]
"""The type of the key dataset.boxes."""


class BoxRows:
    """Makes rows of boxes, and counts the boxes that it changes or leaves out."""

    def __init__(self, boxes: int | BoxKeys) -> None:
        self.keys = boxes if isinstance(boxes, BoxKeys) else BoxKeys(most=boxes)
        self._polygons, self._clipped, self._left_out = 0, 0, Counter[str]()

    def row(self, label: int, edges: Edges, size: tuple[float, float], where: str) -> Row | None:
        """Return the row of a box in an image of this width and height, or None for a box that `outside` leaves out.

        A box may be beyond the image by `EDGE` of its side: such rounding is cut off and not counted.

        Raises:
            ConfigError: the box is no box; with outside=refuse also: it has no area, or it is not in the image.
        """
        left, top, right, bottom = edges
        width, height = size
        clips = self.keys.outside == "clip"
        is_box = all(map(math.isfinite, edges)) and right >= left and bottom >= top
        if not is_box or not (clips or (right > left and bottom > top)):
            _refuse(edges, where, "a right edge beyond the left one, and a bottom below the top")
        is_inside = min(left / width, top / height) >= -EDGE and max(right / width, bottom / height) <= 1 + EDGE
        if not (is_inside or clips):
            _refuse_outside(edges, size, where)
        x0, x1 = (min(max(edge, 0), width) / width for edge in (left, right))
        y0, y1 = (min(max(edge, 0), height) / height for edge in (top, bottom))
        if min(x1 - x0, y1 - y0) < LEAST:
            if not clips:
                _refuse_outside(edges, size, where)
            self.leave_out("outside their image" if right > left and bottom > top else "without area")
            return None
        self._clipped += not is_inside
        return float(label), (x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0

    def around(self, points: Sequence[float]) -> Edges:
        """Return the edges of the smallest box around a polygon's points x, y, x, y, ..."""
        self._polygons += 1
        if not all(map(math.isfinite, points)):
            return math.nan, math.nan, math.nan, math.nan  # which `row` refuses
        x, y = points[0::2], points[1::2]
        return min(x), min(y), max(x), max(y)

    def leave_out(self, why: str) -> None:
        """Count a box that is left out; `why` follows its number."""
        self._left_out[why] += 1

    def notes(self) -> tuple[str, ...]:
        """Return phrases on what was changed and left out, for `Dataset.notes`."""
        left_out = ", ".join(f"{count:,} {why}" for why, count in sorted(self._left_out.items()))
        said = (
            (self._polygons, f"boxes around polygons: {self._polygons:,}"),
            (self._clipped, f"boxes clipped to their image: {self._clipped:,}"),
            (left_out, f"boxes left out: {left_out}"),
        )
        return tuple(words for count, words in said if count)


def _refuse_outside(edges: Edges, size: tuple[float, float], where: str) -> NoReturn:
    _refuse(edges, where, f"boxes in the image, from (0, 0) to ({size[0]:g}, {size[1]:g}); {CLIP}")


def _refuse(edges: Edges, where: str, allowed: str) -> NoReturn:
    left, top, right, bottom = edges
    raise ConfigError(f"{where}: found a box from ({left:g}, {top:g}) to ({right:g}, {bottom:g}), allowed: {allowed}")
