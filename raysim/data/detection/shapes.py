"""The solids that things of the streets are drawn of: boxes, and balls that look the same from all sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from raysim.data.detection.streets import (
    BUILDING,
    CAR,
    CYCLIST,
    PEDESTRIAN,
    RAIL,
    TREE,
    TRUCK,
    Floats,
    Ints,
    Things,
)

PAINTS = np.array(
    [[178, 34, 34], [30, 70, 150], [225, 225, 225], [40, 42, 46], [150, 155, 160], [200, 160, 40], [35, 95, 60]], float
)
WALLS = np.array(
    [[176, 120, 92], [196, 178, 150], [150, 144, 138], [205, 190, 170], [132, 92, 80], [120, 130, 142]], float
)
CLOTHES = np.array(
    [[190, 50, 60], [50, 90, 170], [230, 190, 70], [60, 60, 70], [120, 170, 110], [220, 220, 215]], float
)
LEAVES = np.array([[58, 104, 48], [78, 120, 52], [46, 88, 52], [96, 112, 50]], float)

Part = tuple[float, float, float, float, float, float, tuple[int, int, int] | str, bool, float]
"""Of a solid: its center to the right and ahead, its bottom, width, length and height, its color or `own` or `dark`,
whether it is a ball, and how much it shines at night."""

PARTS: dict[int, list[Part]] = {
    CAR: [
        (0, 0, 0.25, 1.8, 4.3, 0.65, "own", False, 0),
        (0, -0.25, 0.9, 1.6, 2.2, 0.58, (58, 72, 84), False, 0),
        *[(x, z, 0, 0.25, 0.7, 0.6, (22, 22, 24), False, 0) for x in (-0.82, 0.82) for z in (-1.35, 1.35)],
        *[(x, 2.12, 0.55, 0.36, 0.12, 0.22, (255, 250, 215), False, 1) for x in (-0.62, 0.62)],
        *[(x, -2.12, 0.55, 0.34, 0.12, 0.2, (215, 30, 25), False, 0.8) for x in (-0.65, 0.65)],
    ],
    TRUCK: [
        (0, -1.2, 0.7, 2.45, 6.2, 2.7, "own", False, 0),
        (0, 2.9, 0.5, 2.3, 1.9, 2.1, "dark", False, 0),
        (0, 3.82, 1.5, 2.0, 0.1, 0.8, (58, 72, 84), False, 0),
        *[(x, z, 0, 0.35, 1.0, 0.95, (22, 22, 24), False, 0) for x in (-1.05, 1.05) for z in (-3.2, -2.0, 2.7)],
        *[(x, 3.86, 0.75, 0.4, 0.12, 0.25, (255, 250, 215), False, 1) for x in (-0.85, 0.85)],
        *[(x, -4.32, 0.75, 0.35, 0.1, 0.25, (215, 30, 25), False, 0.8) for x in (-0.95, 0.95)],
    ],
    PEDESTRIAN: [
        (-0.1, 0, 0, 0.18, 0.24, 0.85, "dark", False, 0),
        (0.1, 0, 0, 0.18, 0.24, 0.85, "dark", False, 0),
        (0, 0, 0.8, 0.5, 0.3, 0.65, "own", False, 0),
        (0, 0, 1.45, 0.28, 0.28, 0.3, (214, 170, 140), True, 0),
    ],
    CYCLIST: [
        (0, 0.55, 0, 0.08, 0.66, 0.66, (26, 26, 28), False, 0),
        (0, -0.55, 0, 0.08, 0.66, 0.66, (26, 26, 28), False, 0),
        (0, 0, 0.55, 0.1, 1.1, 0.12, "own", False, 0),
        (0, 0.5, 0.95, 0.5, 0.08, 0.08, (40, 40, 44), False, 0),
        (-0.14, 0, 0.4, 0.14, 0.3, 0.6, "dark", False, 0),
        (0.14, 0, 0.4, 0.14, 0.3, 0.6, "dark", False, 0),
        (0, 0.05, 0.95, 0.46, 0.36, 0.6, "own", False, 0),
        (0, 0.15, 1.55, 0.28, 0.28, 0.3, (235, 235, 235), True, 0),
    ],
    TREE: [
        (0, 0, 0, 0.35, 0.35, 2.2, (88, 66, 48), False, 0),
        (0, 0, 1.7, 3.0, 3.0, 3.0, "own", True, 0),
        (0.5, 0.2, 3.0, 2.2, 2.2, 2.2, "own", True, 0),
    ],
    RAIL: [],
    BUILDING: [],
}


@dataclass(frozen=True)
class Solids:
    """Solids in front of the camera: a row each of all arrays."""

    right: Floats
    ahead: Floats
    bottom: Floats
    size: Floats
    """Width, length and height, [n, 3]."""
    direction: Floats
    color: Floats
    """0 to 255, [n, 3]."""
    ball: npt.NDArray[np.bool_]
    shine: Floats
    """From 0 to 1: how bright it is without light."""
    thing: Ints
    """The index of its thing."""
    windows: npt.NDArray[np.bool_]


def solids(things: Things, right: Floats, ahead: Floats, direction: Floats) -> Solids:
    """Return the solids of things with these places and directions, as the camera sees them."""
    rows: list[tuple[Floats, ...]] = []
    for kind, parts in PARTS.items():
        chosen = np.flatnonzero(things.kind == kind)
        if len(chosen) and not parts:
            rows.append(_of_one_box(things, chosen, right, ahead, direction))
        for part in parts if len(chosen) else ():
            rows.append(_of_part(part, things, chosen, right, ahead, direction))
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    place, size, turned, color, ball, shine, thing, windows = columns
    right_of, ahead_of, bottom = place.T
    return Solids(right_of, ahead_of, bottom, size, turned, color, ball > 0, shine, thing, windows > 0)


def _of_part(
    part: Part, things: Things, chosen: Ints, right: Floats, ahead: Floats, turned: Floats
) -> tuple[Floats, ...]:
    x, z, bottom, width, length, height, paint, ball, shine = part
    look, kind, angle = things.look[chosen], int(things.kind[chosen[0]]), turned[chosen]
    scale = 1 + 0.25 * (look - 0.5) if kind in (PEDESTRIAN, TREE) else np.ones(len(chosen))
    scale = 1.6 * scale if kind == TREE else scale
    n = len(chosen)
    place = np.stack(
        [
            right[chosen] + scale * (x * np.cos(angle) + z * np.sin(angle)),
            ahead[chosen] + scale * (z * np.cos(angle) - x * np.sin(angle)),
            scale * bottom,
        ],
        1,
    )
    palette = LEAVES if kind == TREE else CLOTHES if kind in (PEDESTRIAN, CYCLIST) else PAINTS
    own = palette[(look * 7919).astype(int) % len(palette)]
    color = np.broadcast_to(paint, (n, 3)) if not isinstance(paint, str) else own if paint == "own" else 0.45 * own
    size = scale[:, None] * np.array([width, length, height])
    return place, size, angle, color.astype(float), np.full(n, float(ball)), np.full(n, shine), chosen, np.zeros(n)


def _of_one_box(things: Things, chosen: Ints, right: Floats, ahead: Floats, turned: Floats) -> tuple[Floats, ...]:
    n, is_house = len(chosen), things.kind[chosen] == BUILDING
    place = np.stack([right[chosen], ahead[chosen], np.where(is_house, 0, 0.15)], 1)
    size = np.stack([things.width[chosen], things.length[chosen], things.height[chosen]], 1)
    walls = WALLS[(things.look[chosen] * 7919).astype(int) % len(WALLS)]
    color = np.where(is_house[:, None], walls, 160.0)
    return place, size, turned[chosen], color, np.zeros(n), np.zeros(n), chosen, is_house.astype(float)
